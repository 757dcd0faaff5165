"""What pytest leaves out where an optional package is missing."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob: list[str] = []
if find_spec("torch") is None:
    # Their tests say so, and are skipped; doctests could not even be collected.
    collect_ignore_glob = [
        "src/cpcapp/splicing/networks/*.py",
        "src/cpcapp/splicing/making/histories.py",
        "src/cpcapp/splicing/making/stream.py",
        "src/cpcapp/backends/torch*.py",
        "src/cpcapp/splicing/devices/*.py",
        "src/cpcapp/splicing/training/device_patches.py",
        "docs/gpu.md",
    ]
elif find_spec("onnx") is None:
    collect_ignore_glob = ["src/cpcapp/splicing/networks/export.py"]
