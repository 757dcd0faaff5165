"""What a GPU makes of moments, contrasts, patches and photos.

Each section prints a line of JSON as soon as it is done; one that fails says why, and the others
go on. Needs torch and NumPy. Sections that need more are left out where it is missing.

    PYTHONPATH=src python benchmarks/gpu.py -o benchmarks/results/gpu.json
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import platform
import sys
import time
import traceback
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

# Installed with cpcapp or one of its extras. Those that are missing are named in the result.
OPTIONAL = (
    *("scipy", "sklearn", "cv2", "PIL", "safetensors", "onnx", "onnxruntime", "threadpoolctl"),
    *("jinja2", "cupy", "zarr", "dask", "h5py", "pyarrow", "numba", "reportlab", "joblib"),
)
# Imported by modules that are measured here, which call nothing of them.
STAND_INS = ("scipy", "sklearn", "cv2", "PIL", "jinja2", "threadpoolctl", "reportlab", "joblib")


class _StandIn(type):
    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return cls


class _Missing(metaclass=_StandIn):
    """Takes the place of everything in a package that is not there."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise ImportError("is called here, but is not installed")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports stand-ins for packages that are missing."""

    def __init__(self, names: list[str]) -> None:
        self.names = names

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.split(".")[0] not in self.names:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: Any) -> types.ModuleType:
        module = types.ModuleType(spec.name)
        module.__getattr__ = lambda name: getattr(_Missing, name)  # type: ignore[method-assign]
        module.issparse = lambda _: False  # type: ignore[attr-defined]
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def installed() -> dict[str, Any]:
    found = {}
    for name in OPTIONAL:
        try:
            module = importlib.import_module(name)
            found[name] = getattr(module, "__version__", "unknown")
        except Exception:
            found[name] = None
    return found


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], device: torch.device, repeats: int = 3) -> float:
    """Return the least wall time of some runs, after one to warm up."""
    work()
    best = float("inf")
    for _ in range(repeats):
        synchronize(device)
        start = time.perf_counter()
        work()
        synchronize(device)
        best = min(best, time.perf_counter() - start)
    return best


def clock(taken: dict[str, float], label: str, work: Callable[..., Any], *given: Any) -> Any:
    """Run something and keep its wall time."""
    start = time.perf_counter()
    result = work(*given)
    taken[label] = time.perf_counter() - start
    return result


# -- sections ------------------------------------------------------------------------------


def product_rates(run: Run) -> dict[str, Any]:
    """The card's own rate: one large square product."""
    n = run.size(16384, 512)
    rates = {}
    for name, dtype, precision in (
        ("float32", torch.float32, "highest"),
        ("tf32", torch.float32, "high"),
        ("float64", torch.float64, "highest"),
    ):
        a, b = (torch.randn(n, n, device=run.device, dtype=dtype) for _ in range(2))
        torch.set_float32_matmul_precision(precision)
        taken = seconds(lambda a=a, b=b: a @ b, run.device)
        torch.set_float32_matmul_precision("highest")
        rates[name] = 2.0 * n**3 / taken / 1e12
    run.rates = rates
    return {"order": n, "teraflops": rates}


def moments_rates(run: Run) -> dict[str, Any]:
    """Moments of rows on the card. An (n, M) tensor counts as 2 n M² operations.

    That is what the plain product takes. Half of it would do: the result is symmetric.
    """
    from cpcapp.moments.torch import DeviceMoments, panel_width

    found = []
    for width, rows in ((784, 2_000_000), (3072, 500_000), (12288, 100_000)):
        width, rows = run.size(width, min(width, 400)), run.size(rows, 9000)
        for kind, dtype, options in (
            ("float32", torch.float32, {}),
            ("tf32", torch.float32, {"allow_tf32": True}),
            ("float64", torch.float64, {}),
        ):
            if dtype == torch.float64:
                rows //= 2
            x = torch.randn(rows, width, device=run.device, dtype=dtype)

            def work(x: Any = x, options: Any = options) -> None:
                DeviceMoments(run.device, **options).update(x)

            taken = seconds(work, run.device, repeats=2)
            rate = 2.0 * rows * width**2 / taken / 1e12
            step = panel_width(width)
            panels = range(0, width, step)
            share = sum(min(step, width - i) * (width - i) for i in panels) / width**2
            found.append(
                {
                    "features": width,
                    "rows": rows,
                    "type": kind,
                    "seconds": taken,
                    "teraflops": rate,
                    "of_own_product_rate": rate / run.rates[kind],
                    "of_own_rate_counting_only_what_is_computed": rate * share / run.rates[kind],
                    "rows_per_second": rows / taken,
                }
            )
            del x
            run.clear()
    return {"moments": found}


def moments_errors(run: Run) -> dict[str, Any]:
    """How far moments are from those in float64, with means of ten deviations."""
    from cpcapp.moments.torch import DeviceMoments

    n, width = run.size(400_000, 9000), run.size(784, 100)
    generator = torch.Generator(run.device).manual_seed(0)
    made = {"generator": generator, "device": run.device, "dtype": torch.float64}
    mix = torch.randn(width, width, **made) / width**0.5
    x = (torch.randn(n, width, **made) @ mix + 10.0).float()
    exact = DeviceMoments(run.device, double=True).update(x).covariance()
    values = torch.linalg.eigvalsh(exact)
    errors = {}
    for kind, options in (("float32", {}), ("tf32", {"allow_tf32": True})):
        other = DeviceMoments(run.device, **options).update(x).covariance()
        scale = exact.diagonal().sqrt()
        errors[kind] = {
            "largest_error_of_a_correlation": float(
                ((other - exact).abs() / scale / scale[:, None]).max()
            ),
            "largest_relative_error_of_an_eigenvalue": float(
                ((torch.linalg.eigvalsh(other) - values).abs() / values).max()
            ),
            "largest_error_of_an_eigenvalue_over_the_largest": float(
                (torch.linalg.eigvalsh(other) - values).abs().max() / values[-1]
            ),
        }
    condition = float(values[-1] / values[0])
    return {"rows": n, "features": width, "condition": condition, "errors": errors}


def numpy_agreement(run: Run) -> dict[str, Any]:
    """Moments and contrast on the card against plain NumPy."""
    from cpcapp.contrast.solve import solve_contrast
    from cpcapp.moments.torch import DeviceMoments

    rng = np.random.default_rng(0)
    width, n, k = 300, 20_000, 10
    mix = rng.normal(size=(width, width)) / width**0.5
    X = rng.normal(size=(n, width)) * np.linspace(3.0, 0.5, width) + 5.0
    B = rng.normal(size=(n, width)) @ mix - 2.0
    sides = [DeviceMoments(run.device).update(torch.from_numpy(a)) for a in (X, B)]
    errors = [
        float(np.abs(side.to_moments().covariance() - np.cov(a.T, ddof=0)).max())
        for side, a in zip(sides, (X, B), strict=True)
    ]
    found = solve_contrast(*sides, k, loading="none")
    lower = np.linalg.cholesky(np.cov(B.T, ddof=0))
    c = np.linalg.solve(lower, np.linalg.solve(lower, np.cov(X.T, ddof=0)).T)
    reference = np.linalg.eigvalsh((c + c.T) / 2.0)[::-1][:k]
    return {
        "largest_error_of_a_covariance": max(errors),
        "largest_relative_error_of_an_eigenvalue": float(
            np.abs(found.eigenvalues / reference - 1.0).max()
        ),
    }


def solving(run: Run) -> dict[str, Any]:
    """Cholesky, reduction and eigenpairs on the card, float64."""
    from cpcapp.contrast.solve import solve_contrast
    from cpcapp.moments.torch import DeviceMoments

    found = []
    for width in (768, 3072, 12288):
        width = run.size(width, min(width, 300))
        sides = []
        for seed in (0, 1):
            generator = torch.Generator(run.device).manual_seed(seed)
            x = torch.randn(2 * width, width, device=run.device, generator=generator)
            sides.append(DeviceMoments(run.device).update(x * torch.linspace(1, 3, width).to(x)))
        for loading in ("oas", "auto"):
            taken = seconds(
                lambda sides=sides, loading=loading: solve_contrast(*sides, 50, loading=loading),
                run.device,
                repeats=1,
            )
            found.append({"features": width, "k": 50, "loading": loading, "seconds": taken})
    return {"solve": found}


def photos_in_memory(n: int, side: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Return photos with the spectrum of photos, and the same with another noise, on the host."""
    generator = torch.Generator(device).manual_seed(0)
    made: list[torch.Tensor] = []
    for noise in (0.01, 0.02):
        photos = torch.zeros(n, 3, side, side, device=device)
        for level in range(8):
            small = max(2, side >> level)
            layer = torch.randn(n, 3, small, small, device=device, generator=generator)
            photos += torch.nn.functional.interpolate(layer, (side, side), mode="bilinear") * (
                0.01 * 2**level
            )
        photos = photos / (6.0 * photos.std()) + 0.5
        photos += noise * torch.randn(photos.shape, device=device, generator=generator)
        made.append((photos.clamp(0, 1) * 255.0).round().to(torch.uint8).cpu())
    return made[0], made[1]


def _add_patches(moments: Any, planes: torch.Tensor, places: torch.Tensor, size: int) -> Any:
    """Add patches of photos to moments on their device, some thousands at a time."""
    # All patches as a view: (photos, rows, columns, channels, size, size).
    windows = planes.to(moments.device).unfold(2, size, 1).unfold(3, size, 1)
    windows = windows.permute(0, 2, 3, 1, 4, 5)
    for part in places.to(moments.device).split(4096):
        photo, row, column = part.unbind(1)
        moments.update(windows[photo, row, column].flatten(1).float().div_(255.0))
    return moments


def patches_to_filters(run: Run) -> dict[str, Any]:
    """A million patches of 64 x 64 x 3 from photos in memory to filters."""
    from cpcapp.contrast.solve import solve_contrast
    from cpcapp.moments.torch import DeviceMoments

    size, n = run.size(64, 8), run.size(1_000_000, 4000)
    photos = photos_in_memory(run.size(96, 4), run.size(1024, 96), run.device)
    run.clear()
    rng = np.random.default_rng(0)
    limits = (len(photos[0]), *(photos[0].shape[2] - size + 1,) * 2)
    places = [
        torch.from_numpy(np.stack([rng.integers(0, limit, n // 2) for limit in limits], axis=1))
        for _ in photos
    ]
    out: dict[str, Any] = {"patches": n, "size": size, "features": 3 * size**2}
    values = {}
    for kind, options in (
        ("float32", {}),
        ("float64", {"double": True}),
        ("tf32", {"allow_tf32": True}),
    ):
        synchronize(run.device)
        start = time.perf_counter()
        sides = [
            _add_patches(DeviceMoments(run.device, **options), planes, where, size)
            for planes, where in zip(photos, places, strict=True)
        ]
        synchronize(run.device)
        moments = time.perf_counter()
        found = solve_contrast(*sides, 150 if run.real else 20, loading="oas")
        end = time.perf_counter()
        values[kind] = found.eigenvalues
        out[kind] = {
            "seconds": end - start,
            "seconds_of_moments": moments - start,
            "seconds_of_solving": end - moments,
            "eigenvalues": found.eigenvalues[[0, 1, -1]].tolist(),
        }
        del sides
        run.clear()
    for kind in ("float32", "tf32"):
        out[kind]["largest_relative_difference_to_float64"] = float(
            np.abs(values[kind] / values["float64"] - 1.0).max()
        )
    return out


SECTIONS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "rates": product_rates,
    "agreement": numpy_agreement,
    "moments": moments_rates,
    "errors": moments_errors,
    "solve": solving,
    "patches": patches_to_filters,
}


class Run:
    """The device, and whether this is the real thing or a trial on a CPU."""

    def __init__(self, device: str, real: bool, missing: list[str]) -> None:
        self.device, self.real, self.missing = torch.device(device), real, missing
        self.rates = dict.fromkeys(("float32", "tf32", "float64"), float("nan"))

    def size(self, real: int, trial: int) -> int:
        return real if self.real else trial

    def clear(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sections", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--keep", type=Path, help="take the other sections from this earlier file")
    parser.add_argument("--trial", action="store_true", help="small sizes, to try the script")
    arguments = parser.parse_args()
    modules = installed()
    missing = [name for name in STAND_INS if modules[name] is None]
    sys.meta_path.insert(0, _Finder(missing))
    cuda = arguments.device.startswith("cuda")
    result: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "card": torch.cuda.get_device_name() if cuda else "none",
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "numpy": np.__version__,
        "modules": modules,
        "sections": {},
    }
    if arguments.keep is not None:
        earlier = json.loads(arguments.keep.read_text())
        if earlier["card"] != result["card"]:
            parser.error(f"{arguments.keep} is of another card, {earlier['card']}")
        result["sections"] = earlier["sections"]
        kept = [name for name in earlier["sections"] if name not in arguments.sections]
        result["kept_from_an_earlier_run"] = {"date": earlier["date"], "sections": kept}
    print(
        json.dumps({key: value for key, value in result.items() if key != "sections"}), flush=True
    )
    run = Run(arguments.device, not arguments.trial, missing)
    for name in arguments.sections:
        start = time.perf_counter()
        try:
            found = SECTIONS[name](run)
        except Exception as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
            found = {"failed": reason, "at": traceback.format_exc().splitlines()[-3:-1]}
        found["section_seconds"] = time.perf_counter() - start
        result["sections"][name] = found
        run.clear()
        print(json.dumps({name: found}), flush=True)
        arguments.output.write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
