"""Test how many components of two sets are significant."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cpcapp.detection import count_components, count_components_by_permutation
from cpcapp.tables.messages import Message, TableError
from cpcapp.tables.model import FloatArray
from cpcapp.tables.sample_sets import SampleSet

# Operations of one solution, up to which permutations are tried unasked with n_components="auto":
# a hundred such solutions took half a minute on two cores.
_MAX_UNASKED_OPERATIONS = 5e8

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
    """

    n_components: int | None
    test: str = ""
    reason: Message | None = None


def find_significance(
    target: SampleSet,
    background: SampleSet | None,
    *,
    method: str,
    asked: int | str,
    permutation_test: bool = False,
) -> Significance:
    """Count the components with eigenvalues larger than sampling noise gives.

    Parameters
    ----------
    target, background : SampleSet
    method : {"cpca++", "cpca", "pca"}
        There is a test for ``"cpca++"`` only.
    asked : int or "auto"
        ``"auto"`` tries permutations where the Tracy-Widom test can't be used and the tables
        are small.
    permutation_test : bool
        Use permutations in any case.
    """
    if method != "cpca++" or background is None:
        return Significance(None, reason=Message("the test is for cpca++ only"))
    if permutation_test:
        return _permute(target, background)
    try:
        found = count_components(target.standardized_moments(), background.standardized_moments())
        return Significance(found, TRACY_WIDOM)
    except ValueError:  # too few background rows, or a singular covariance
        p = len(target.features)
        problem = (
            f"the Tracy-Widom test needs a background of full rank with more than {p + 1} rows"
        )
    n = target.moments.n_samples + background.moments.n_samples
    if asked == "auto" and n * p * min(n, p) <= _MAX_UNASKED_OPERATIONS:
        return _permute(target, background)
    advice = "{permutation_test} needs no such background, but takes longer"
    return Significance(None, reason=Message(problem, advice, {"permutation_test": True}))


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
            f"no component is significant ({found.test})",
            "give {n_components} to compute components anyway",
            n_components=2,
        )
    return found.n_components


def _permute(target: SampleSet, background: SampleSet) -> Significance:
    own, other = _load_rows(target), _load_rows(background)
    return Significance(count_components_by_permutation(own, other), PERMUTATION)


def _load_rows(sample_set: SampleSet) -> FloatArray:
    values = [
        chunk.values if isinstance(chunk.values, np.ndarray) else chunk.values.toarray()
        for chunk in sample_set.clean_rows([])
    ]
    return np.asarray(np.concatenate(values) / sample_set.scale)
