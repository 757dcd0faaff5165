"""Test how many components of two sets are significant."""

from __future__ import annotations

from dataclasses import dataclass

from cpcapp.inference.glrt import count_components
from cpcapp.inference.permutation import PermutationTest, count_loaded
from cpcapp.inference.permutation import permutation_test as permute
from cpcapp.tables.messages import Message, TableError
from cpcapp.tables.sample_sets import SampleSet

TRACY_WIDOM, PERMUTATION = "Tracy-Widom test", "permutation test"


@dataclass(frozen=True)
class Significance:
    """How many components are significant.

    Attributes
    ----------
    n_components : int or None
        None if it was not tested.
    test : str
        Name of the test; empty if it was not tested.
    reason : Message or None
        Why it was not tested.
    permutations : PermutationTest or None
        What shuffling rows gave.
    is_sample : bool
        Whether the rows shuffled are a random sample of more.
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
        own, other = self.permutations.n_rows
        return f"{self.test} of {own:,} + {other:,} rows drawn at random"


def find_significance(
    target: SampleSet,
    background: SampleSet | None,
    *,
    method: str,
    permutation_test: bool = True,
) -> Significance:
    """Count the components with eigenvalues larger than chance gives.

    Parameters
    ----------
    target, background : SampleSet
    method : {"cpca++", "cpca", "pca"}
        There is a test for ``"cpca++"`` only.
    permutation_test : bool, default=True
        Shuffle the rows that both sets keep. Otherwise the Tracy-Widom test, which needs the
        moments only, but is for Gaussian rows and a background of full rank.
    """
    if method != "cpca++" or background is None:
        return Significance(None, reason=Message("the test is for cpca++ only"))
    if permutation_test:
        return _permute(target, background)
    try:
        found = count_components(target.standardized_moments(), background.standardized_moments())
        return Significance(found, TRACY_WIDOM)
    except ValueError:  # too few background rows, or a singular covariance
        least = len(target.features) + 1
        problem = (
            f"the Tracy-Widom test needs a background of full rank with more than {least} rows"
        )
        advice = "{permutation_test} needs no such background"
        return Significance(None, reason=Message(problem, advice, {"permutation_test": True}))


def _permute(target: SampleSet, background: SampleSet) -> Significance:
    try:
        test = permute(target.sampled_rows(), background.sampled_rows())
    except ValueError as error:  # a handful of rows
        return Significance(None, reason=Message(str(error)))
    moments = target.standardized_moments(), background.standardized_moments()
    n_all = target.sample.n_seen, background.sample.n_seen
    return Significance(
        count_loaded(test, *moments), PERMUTATION, None, test, is_sample=test.n_rows != n_all
    )


def choose_n_components(asked: int | str, found: Significance) -> int:
    """Return the number of components, or raise `TableError` if none can be chosen."""
    if not isinstance(asked, str):
        return asked
    if found.n_components is None:
        assert found.reason is not None
        reason = found.reason
        raise TableError(
            f"the number of components can't be chosen: {reason.problem}",
            "give {n_components} as a number" + (f"; {reason.advice}" if reason.advice else ""),
            **reason.values,
        )
    if found.n_components == 0:
        raise TableError(
            f"no component is significant ({found.describe()})",
            "give {n_components} to compute components anyway",
            n_components=2,
        )
    return found.n_components
