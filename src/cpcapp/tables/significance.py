"""Test how many components of two sets are significant."""

from __future__ import annotations

from dataclasses import dataclass

from cpcapp.inference.noise import count_components
from cpcapp.inference.permutation import PermutationTest, count_components_of
from cpcapp.tables.messages import Message, TableError
from cpcapp.tables.sample_sets import SampleSet

TRACY_WIDOM, PERMUTATION = "Tracy-Widom test", "permutation test"


@dataclass(frozen=True)
class Significance:
    """How many components are significant, by which test; or None and the reason.

    ``is_sample`` says whether the rows that were shuffled are a random sample of more.
    """

    n_components: int | None
    test: str = ""
    reason: Message | None = None
    permutations: PermutationTest | None = None
    is_sample: bool = False

    def describe(self) -> str:
        """Return the name of the test, and which rows it is of if not of all."""
        if not self.is_sample or self.permutations is None:
            return self.test
        n_target, n_background = self.permutations.n_rows
        return f"{self.test} of {n_target:,} + {n_background:,} rows drawn at random"


def find_significance(
    target: SampleSet,
    background: SampleSet | None,
    *,
    method: str,
    permutation_test: bool = True,
) -> Significance:
    """Count the components that are more than chance.

    By shuffling the rows at hand, or by the Tracy-Widom test, which needs the moments only, but is
    for Gaussian rows and a background of full rank.
    """
    if method != "cpca++" or background is None:
        return Significance(None, reason=Message("the test is for cpca++ only"))
    try:
        if permutation_test:
            test = count_components_of(target.sample, background.sample)
            n_all = target.rows.n_seen, background.rows.n_seen
            return Significance(
                test.n_components, PERMUTATION, None, test, is_sample=test.n_rows != n_all
            )
        count = count_components(target.scaled_moments(), background.scaled_moments())
        return Significance(count, TRACY_WIDOM)
    except ValueError as error:  # too few rows, or a singular covariance
        if permutation_test:
            return Significance(None, reason=Message(str(error)))
        least = len(target.features) + 1
        problem = (
            f"the Tracy-Widom test needs a background of full rank with more than {least} rows"
        )
        advice = "{permutation_test} needs no such background"
        return Significance(None, reason=Message(problem, advice, {"permutation_test": True}))


def choose_n_components(asked: int | str, found: Significance) -> int:
    """Return the number of components, or raise `TableError` if none can be chosen."""
    if not isinstance(asked, str):
        return asked
    if found.reason is not None:
        raise TableError(
            f"the number of components can't be chosen: {found.reason.problem}",
            "give {n_components} as a number"
            + (f"; {found.reason.advice}" if found.reason.advice else ""),
            **found.reason.values,
        )
    if not found.n_components:
        raise TableError(
            f"no component is significant ({found.describe()})",
            "give {n_components} to compute components anyway",
            n_components=2,
        )
    return found.n_components
