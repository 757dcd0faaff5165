"""What a GPU makes of moments, contrasts, patches and photos.

Each section prints a line of JSON as soon as it is done; one that fails says why, and the others
go on. Needs torch and NumPy. Sections that need more are left out where it is missing.

    PYTHONPATH=src python benchmarks/gpu.py -o benchmarks/results/gpu.json
"""

from __future__ import annotations

import argparse
import cProfile
import datetime
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import multiprocessing
import os
import platform
import pstats
import sys
import time
import traceback
import types
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
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


def read_network() -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the graphs of the shipped network without the reader of models."""
    folder = Path(importlib.util.find_spec("cpcapp").origin).parent  # type: ignore[union-attr, arg-type]
    data = (folder / "splicing" / "models" / "default.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    graphs = {}
    for stage in ("pixels", "near", "far", "seam"):
        start, stop = header[f"network.{stage}"]["data_offsets"]
        graphs[stage] = data[8 + length + start : 8 + length + stop]
    about = header["__metadata__"]
    content = about.get("header") or next(v for v in about.values() if "margins" in v)
    return graphs, json.loads(content)["network"]


@torch.inference_mode()
def run_network(network: Any, levels: torch.Tensor, steps: torch.Tensor) -> Any:
    image = levels.float().contiguous(memory_format=torch.channels_last)
    return network(image, steps)


def trace_network(run: Run) -> dict[str, Any]:
    """The trace network on the card: agreement with ONNX Runtime, and time."""
    from cpcapp.splicing.devices.network import DeviceTraceMeter
    from cpcapp.splicing.measure.network import TraceMeter

    graphs, facts = read_network()
    network = DeviceTraceMeter(TraceMeter(graphs, facts), run.device)
    out: dict[str, Any] = {"times": []}
    rng = np.random.default_rng(0)
    shapes = [("4K", 2160, 3840, 1), ("Columbia", 568, 760, 1), ("Columbia", 568, 760, 16)]
    for name, height, width, batch in shapes if run.real else [("small", 64, 96, 2)]:
        levels = torch.from_numpy(rng.integers(0, 256, (batch, 3, height, width), dtype=np.uint8))
        levels, steps = levels.to(run.device), torch.zeros(batch, 64, device=run.device)
        for kind in ("float32", "tf32", "float16"):
            torch.set_float32_matmul_precision("high" if kind == "tf32" else "highest")
            if run.device.type == "cuda":
                torch.backends.cudnn.allow_tf32 = kind != "float32"
            half = kind == "float16" and run.device.type == "cuda"
            with torch.autocast(run.device.type, torch.float16, enabled=half):
                # The library convolves in float32 whatever is set.
                work = network.run if kind == "float32" else partial(run_network, network.network)
                taken = seconds(partial(work, levels, steps), run.device)
            out["times"].append(
                {"photo": name, "batch": batch, "type": kind, "seconds_a_photo": taken / batch}
            )
        run.clear()
    torch.set_float32_matmul_precision("highest")
    if run.device.type == "cuda":
        torch.backends.cudnn.allow_tf32 = False
    if importlib.util.find_spec("onnxruntime") is not None:
        import onnxruntime

        image = rng.integers(0, 256, (1, 3, 256, 320)).astype(np.float32)
        image = (image + np.roll(image, 1, 2) + np.roll(image, 1, 3)) // 3
        steps = np.arange(1, 65, dtype=np.float32)[None]
        given = torch.from_numpy(image), torch.from_numpy(steps)
        ours = [part.cpu().numpy() for part in network.run(*given)]

        def stage(name: str, *inputs: Any) -> list[Any]:
            session = onnxruntime.InferenceSession(graphs[name])
            return session.run(None, {f"in{i}": x for i, x in enumerate(inputs)})

        blocks, detail = stage("pixels", image, steps)
        (blocks,) = stage("near", blocks)
        parts = torch.nn.functional.adaptive_avg_pool2d(torch.from_numpy(blocks), facts["grid"])
        region, pasted, traces, coarse = stage("far", blocks, parts.numpy())
        (seam,) = stage("seam", detail, coarse)
        out["largest_difference_to_onnxruntime"] = {
            name: float(np.abs(a - b).max())
            for name, a, b in zip(
                ("seam", "region", "pasted", "traces"),
                ours,
                (seam, region, pasted, traces),
                strict=True,
            )
        }
    return out


def photo_stages(run: Run) -> dict[str, Any]:
    """Where the time of a photo goes on the CPU, stage by stage."""
    import cv2

    from cpcapp.splicing import load_model
    from cpcapp.splicing.measure.edges import detect_edges
    from cpcapp.splicing.measure.jpeg_blocks import jpeg_block_traces
    from cpcapp.splicing.measure.mosaic import lattice_contrast
    from cpcapp.splicing.photo.pixels import as_unit_float

    localizer = load_model()
    out: dict[str, Any] = {"cores": os.cpu_count(), "photos": {}}
    rng = np.random.default_rng(0)
    for name, shape in (("4K", (2160, 3840, 3)), ("Columbia", (568, 757, 3))):
        if not run.real:
            shape = (200, 260, 3)
        photo = cv2.GaussianBlur(rng.integers(0, 256, shape, dtype=np.uint8), (0, 0), 2.0)
        photo = cv2.normalize(photo, None, 0, 255, cv2.NORM_MINMAX)
        taken: dict[str, float] = {}
        for _ in range(2):  # the first one warms up
            pixels = clock(taken, "as float", as_unit_float, photo)
            clock(taken, "edges", detect_edges, pixels)
            mosaic = clock(taken, "mosaic trace", localizer._measure_mosaic, pixels)
            options = localizer.preset.mosaic
            clock(taken, "mosaic contrast", lattice_contrast, pixels, mosaic, options)
            clock(taken, "blocks of JPEG", jpeg_block_traces, photo, None, (0, 0))
            for bank in localizer.banks:
                clock(taken, f"filters: {bank.options.channels}", bank.map, pixels)
            clock(taken, "all", localizer.localize, photo)
        out["photos"][name] = {"shape": shape, "seconds": taken}
    return out


def noisy_photo(shape: tuple[int, int, int], seed: int) -> Any:
    """Return a photo with edges, smooth parts and noise."""
    import cv2

    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (shape[0] // 60 + 2, shape[1] // 60 + 2, 3), dtype=np.uint8)
    photo = cv2.resize(small, shape[1::-1], interpolation=cv2.INTER_NEAREST)
    photo = cv2.GaussianBlur(photo, (0, 0), 1.0).astype(np.float32)
    photo += rng.normal(scale=4.0, size=shape).astype(np.float32)
    return np.rint(photo.clip(0, 255)).astype(np.uint8)


# Parts of a photo's way, each with all that it calls.
PARTS = (
    *("detect_edges", "mosaic_trace", "lattice_contrast", "grid_offset", "jpeg_block_traces"),
    *("measure", "map", "superpixels", "extract_borders", "best_cut", "find_region"),
    *("measure_features", "estimate_quality", "image_planes", "localize"),
)


def profile_parts(localizer: Any, photo: Any) -> dict[str, float]:
    """Return the wall time of the parts of one photo."""
    profile = cProfile.Profile()
    profile.runcall(localizer.localize, photo)
    found: dict[str, float] = {}
    for (_, _, name), (_, _, _, cumulative, _) in pstats.Stats(profile).stats.items():
        if name in PARTS:
            found[name] = found.get(name, 0.0) + cumulative
    return found


_worker_localizer: Any = None


def _start_worker(device: str, missing: list[str]) -> None:
    global _worker_localizer
    sys.meta_path.insert(0, _Finder(missing))
    import cv2

    from cpcapp.splicing import load_model
    from cpcapp.splicing.devices.localizer import to_device

    cv2.setNumThreads(1)
    torch.set_num_threads(1)
    _worker_localizer = to_device(load_model(), device)


def _localize_made(number: int, shape: tuple[int, int, int]) -> tuple[float, float]:
    """Return the wall time and the processor time of a photo."""
    photo = noisy_photo(shape, number)
    wall, processor = time.perf_counter(), time.process_time()
    _worker_localizer.localize(photo)
    return time.perf_counter() - wall, time.process_time() - processor


def _count(number: int) -> float:
    """Do work that no cache and no memory slows down, and return its wall time."""
    start = time.perf_counter()
    sum(i * i for i in range(3_000_000))
    return time.perf_counter() - start


def in_processes(run: Run, shape: tuple[int, int, int]) -> dict[str, Any]:
    """Photos a second with a process for each core, all of them on one card."""
    n, count = run.size(14, 2), run.size(84, 4)
    # A process works on one photo with one thread: more would be in each other's way.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    os.environ |= threads
    alone = _count(0)
    start = time.perf_counter()
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(n, context, _start_worker, (str(run.device), run.missing)) as pool:
        list(pool.map(_localize_made, range(2 * n), [shape] * 2 * n))
        started = time.perf_counter()
        together = list(pool.map(_count, range(n)))
        counted = time.perf_counter()
        taken = list(pool.map(_localize_made, range(count), [shape] * count))
        end = time.perf_counter()
    wall, processor = np.mean(taken, axis=0)
    return {
        "processes": n,
        "photos_a_second": count / (end - counted),
        "seconds_a_photo": wall,
        "processor_seconds_a_photo": processor,
        "seconds_to_start": started - start,
        "cores_that_work_at_once": n * alone / float(np.mean(together)),
    }


def localizing(run: Run) -> dict[str, Any]:
    """Whole photos: with filters and network on the card, against the CPU alone."""
    from cpcapp.splicing import load_model
    from cpcapp.splicing.devices.localizer import to_device
    from cpcapp.splicing.examples import example_photos
    from cpcapp.splicing.photo.pixels import as_unit_float

    on_cpu = load_model()
    on_card = to_device(on_cpu, run.device)
    out: dict[str, Any] = {"cores": os.cpu_count()}
    columbia = (568, 757, 3) if run.real else (120, 160, 3)
    for name, shape in (
        ("4K", (2160, 3840, 3) if run.real else (160, 240, 3)),
        ("Columbia", columbia),
    ):
        photo = noisy_photo(shape, 0)
        pixels, taken = as_unit_float(photo), {}
        for _ in range(2):  # the first one warms up
            clock(taken, "network on the card", on_card.network.measure, photo)
            for bank in on_card.banks:
                clock(taken, f"{bank.options.channels} filters on the card", bank.map, pixels)
            clock(taken, "everything with the card", on_card.localize, photo)
        clock(taken, "everything on the CPU", on_cpu.localize, photo)
        parts = profile_parts(on_card, photo)
        out[name] = {"shape": shape, "seconds": taken, "parts_with_the_card": parts}
    pairs = [[m.localize(p.photo) for m in (on_cpu, on_card)] for p in example_photos()]
    out["examples"] = {
        "verdicts": [[found.verdict_code for found in pair] for pair in pairs],
        "largest_difference_of_p": max(abs(a.p_value - b.p_value) for a, b in pairs),
        "largest_difference_of_a_boundary": max(
            float(np.abs(a.boundary - b.boundary).max()) for a, b in pairs
        ),
    }
    return out


def many_photos(run: Run) -> dict[str, Any]:
    """Columbia-sized photos a second, by threads and by processes on one card."""
    from cpcapp._io.threads import map_threads
    from cpcapp.splicing import load_model
    from cpcapp.splicing.devices.localizer import to_device

    on_card = to_device(load_model(), run.device)
    shape = (568, 757, 3) if run.real else (120, 160, 3)
    photos = [noisy_photo(shape, seed) for seed in range(run.size(24, 4))]
    on_card.localize(photos[0])
    out: dict[str, Any] = {"shape": shape, "cores": os.cpu_count(), "threads": []}
    out["parts"] = profile_parts(on_card, photos[0])
    for jobs in (1, 8):
        some = photos[: max(4, 3 * jobs)]
        start, processor = time.perf_counter(), time.process_time()
        list(map_threads(on_card.localize, some, jobs=jobs))
        rate = len(some) / (time.perf_counter() - start)
        used = (time.process_time() - processor) / len(some)
        out["threads"].append(
            {"threads": jobs, "photos_a_second": rate, "processor_seconds_a_photo": used}
        )
    out["processes"] = in_processes(run, shape)
    return out


SECTIONS: dict[str, Callable[[Run], dict[str, Any]]] = {
    "rates": product_rates,
    "agreement": numpy_agreement,
    "moments": moments_rates,
    "errors": moments_errors,
    "solve": solving,
    "patches": patches_to_filters,
    "network": trace_network,
    "stages": photo_stages,
    "localize": localizing,
    "many": many_photos,
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
