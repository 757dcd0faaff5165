"""The paper's experiments of Section III and Appendix B, and one of another paper.

Each is a module with a function ``run(settings, progress)`` that returns a `Result`: numbers,
tables and pictures. `words.toml` has their words, and `cpcapp.experiments.report` makes pages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module

from cpcapp.experiments.results import DataProblem, Missing, Progress, Result, Settings, title_of

__all__ = ["NAMES", "Missing", "Result", "Settings", "run_experiment", "run_experiments"]

# In the paper's order, and then that of another paper.
NAMES = (
    *("needle", "synthetic", "mnist_over_grass", "mice_protein", "mhealth", "leukemia", "timing"),
    *("denoising", "gcpca_example"),
)


def run_experiment(
    name: str, settings: Settings, progress: Progress = lambda share: None
) -> Result | Missing:
    """Run one experiment; say so where its data are not here.

    Parameters
    ----------
    name : str
        One of ``NAMES``.
    settings : Settings
    progress : callable, optional
        Called with the share done, from 0 to 1.

    Returns
    -------
    Result or Missing

    Examples
    --------
    >>> from cpcapp.experiments import Settings, run_experiment
    >>> run_experiment("needle", Settings()).title
    'A needle in a haystack (Example 1)'
    """
    if name not in NAMES:
        raise ValueError(f"name={name!r} must be one of {', '.join(NAMES)}")
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    module = import_module(f"cpcapp.experiments.{name}")
    try:
        # Threads add up in whatever order they end; one thread, one result.
        with threadpool_limits(1):
            result: Result = module.run(settings, progress)
    except DataProblem as error:
        return Missing(name, title_of(name), str(error))
    return result


def run_experiments(
    names: Iterable[str],
    settings: Settings,
    progress: Callable[[str, float], None] = lambda name, share: None,
) -> list[Result | Missing]:
    """Run experiments one after the other.

    Parameters
    ----------
    names : iterable of str
    settings : Settings
    progress : callable, optional
        Called with the name of the experiment that runs and the share of all that is done.

    Returns
    -------
    list of Result or Missing

    Examples
    --------
    >>> from cpcapp.experiments import Settings, run_experiments
    >>> [outcome.name for outcome in run_experiments(["needle"], Settings())]
    ['needle']
    """
    names, outcomes = list(names), []
    for i, name in enumerate(names):

        def of_all(share: float, name: str = name, before: int = i) -> None:
            progress(name, (before + share) / len(names))

        of_all(0.0)
        outcomes.append(run_experiment(name, settings, of_all))
        of_all(1.0)
    return outcomes
