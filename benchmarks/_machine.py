"""What a figure depends on besides the code: the machine and the libraries."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info

import cpcapp


def describe_machine() -> dict[str, object]:
    """Return processor, versions, BLAS and load, without names or paths of the machine."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "cpcapp": cpcapp.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "thread_pools": [_pool(info) for info in threadpool_info()],
        "load_average": load_average(),
    }


def load_average() -> list[float] | None:
    try:
        return [round(value, 2) for value in os.getloadavg()]
    except (AttributeError, OSError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _pool(info: dict[str, object]) -> dict[str, object]:
    # The rest of the entry holds paths. The prefix tells NumPy's library from SciPy's.
    kept = ("prefix", "internal_api", "version", "num_threads", "architecture", "threading_layer")
    return {key: info[key] for key in kept if key in info}
