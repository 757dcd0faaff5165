"""The paper's experiments of Section III and Appendix B, and one of another paper.

Each is in a module of its own, with a ``TITLE`` and a function ``run(settings, progress)`` that
returns a :class:`Result`: numbers, tables and pictures, and no layout.
:mod:`cpcapp.experiments.report` makes pages of them. ``cpcapp reproduce`` is the command.
"""

from cpcapp.experiments.results import Missing, Result, Settings
from cpcapp.experiments.running import NAMES, run_experiment, run_experiments

__all__ = ["NAMES", "Missing", "Result", "Settings", "run_experiment", "run_experiments"]
