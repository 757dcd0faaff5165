"""How to make a result again: the command, and what it depends on."""

from __future__ import annotations

import platform
import shlex
from importlib.metadata import PackageNotFoundError, version

from cpcapp import __version__

# Those that compute something.
_PACKAGES = {
    "NumPy": "numpy",
    "OpenCV": "opencv-contrib-python-headless",
    "ONNX Runtime": "onnxruntime",
    "Pillow": "pillow",
}


def repeat_command(name: str, model: str) -> str:
    """Return the command that makes a report again.

    ``model``: the name of a model of the package, or of a file.

    >>> repeat_command("my cat.jpg", "default")
    "cpcapp localize 'my cat.jpg' --model default --report"
    """
    # A name that begins like an option is none.
    photo = f"./{name}" if name.startswith("-") else name
    return f"cpcapp localize {shlex.quote(photo)} --model {shlex.quote(model)} --report"


def list_versions() -> list[tuple[str, str]]:
    """Return the versions of what computed a result.

    >>> [name for name, _ in list_versions()][:2]
    ['cpcapp', 'Python']
    """
    found = [("cpcapp", __version__), ("Python", platform.python_version())]
    for name, package in _PACKAGES.items():
        try:
            found.append((name, version(package)))
        except PackageNotFoundError:
            continue
    return [*found, ("system", f"{platform.system()} {platform.machine()}")]
