"""Optional packages, which extras install."""

from __future__ import annotations

from importlib.util import find_spec


def require_packages(extra: str, *packages: str, purpose: str = "") -> None:
    """Raise ImportError with the command to run if a package is missing; none is imported here.

    >>> require_packages("tables", "no_such_package", purpose="this example")
    Traceback (most recent call last):
    ImportError: this example needs no_such_package; install it with: pip install 'cpcapp[tables]'
    """
    for package in packages:
        if find_spec(package) is None:
            need = f"{purpose} needs {package}".strip()
            raise ImportError(f"{need}; install it with: pip install 'cpcapp[{extra}]'")
