from __future__ import annotations

import os
import subprocess
import sys

import pytest
from sklearn.utils.estimator_checks import estimator_checks_generator

from cpcapp import CPCA, CPCAPlusPlus

ESTIMATORS = [
    CPCAPlusPlus(),
    CPCAPlusPlus(loading=0.1, solver="iterative", scaling="unit"),
    CPCAPlusPlus(missing="pairwise"),
    CPCA(),
    CPCA(alpha=1.0),
]
CHECKS = [
    pytest.param(instance, check, id=f"{estimator}-{check.func.__name__}")
    for estimator in ESTIMATORS
    for instance, check in estimator_checks_generator(estimator)
    # Needs SCIPY_ARRAY_API before SciPy is imported: in the second test.
    if check.func.__name__ != "check_array_api_input"
]


@pytest.mark.parametrize(("estimator", "check"), CHECKS)
def test_scikit_learns_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("name", ["CPCAPlusPlus", "CPCA"])
def test_check_estimator_in_full_with_the_array_api_switched_on(name):
    code = (
        "from sklearn.utils.estimator_checks import check_estimator\n"
        f"from cpcapp import {name}\n"
        f"checks = check_estimator({name}(), on_skip=None)\n"
        "bad = [c['check_name'] for c in checks if c['status'] != 'passed']\n"
        "assert not bad, bad\n"
        "assert len(checks) > 40\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | {"SCIPY_ARRAY_API": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
