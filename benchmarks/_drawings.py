"""Screenshots and drawings, made by code: what is no photo, for benchmarks of what a file says.

Plots of matplotlib, pages of text and shapes by Pillow, and web pages shown by Chromium without a
window. Every number gives another picture, always the same one.
"""

from __future__ import annotations

import html
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

Picture = NDArray[np.uint8]

_WORDS = (
    *("the", "of", "and", "to", "in", "is", "that", "for", "it", "as", "was", "with", "on", "by"),
    *("light", "camera", "photo", "sensor", "edge", "noise", "block", "table", "quality", "seam"),
    *("region", "model", "grid", "filter", "value", "result", "number", "between", "through"),
)
CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    return next((path for name in CHROMIUM if (path := shutil.which(name))), None)


def _text(rng: np.random.Generator, n_words: int) -> str:
    return " ".join(rng.choice(_WORDS, n_words))


def _colour(rng: np.random.Generator) -> tuple[int, int, int]:
    red, green, blue = rng.integers(0, 256, 3).tolist()
    return red, green, blue


def draw_plot(number: int) -> Picture:
    """Return a plot of matplotlib: lines, points, bars, an image of values, or a surface."""
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    rng = np.random.default_rng([1, number])
    style = ("default", "dark_background", "ggplot", "bmh")[number % 4]
    with plt.style.context(style):
        figure, axes = plt.subplots(figsize=(6 + number % 4, 4 + number % 3), dpi=80 + number % 60)
        kind = number % 6
        x = np.linspace(0, 10, 200)
        if kind == 0:
            for _ in range(4):
                axes.plot(x, np.cumsum(rng.normal(size=200)), label=_text(rng, 1))
            axes.legend()
        elif kind == 1:
            axes.scatter(*rng.normal(size=(2, 600)), c=rng.random(600), s=12, alpha=0.6)
        elif kind == 2:
            axes.bar(range(12), rng.random(12), color=[tuple(rng.random(3)) for _ in range(12)])
        elif kind == 3:
            found = axes.imshow(rng.random((12, 16)), cmap="viridis")
            figure.colorbar(found)
        elif kind == 4:
            y, z = np.meshgrid(x, x)
            axes.contourf(y, z, np.sin(y) * np.cos(z * rng.random()), 20)
        else:
            axes.hist(rng.normal(size=2000), 40)
            axes.grid()
        axes.set_title(_text(rng, 4))
        axes.set_xlabel(_text(rng, 2))
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3].copy()
        plt.close(figure)
    return pixels


def draw_page(number: int) -> Picture:
    """Return a page of text, a diagram of boxes, or a cartoon of shapes, by Pillow."""
    rng = np.random.default_rng([2, number])
    size = (int(rng.integers(500, 1300)), int(rng.integers(400, 1000)))
    plain = [(255, 255, 255), (250, 248, 240), (24, 26, 32), _colour(rng)][number % 4]
    image = Image.new("RGB", size, plain)
    draw = ImageDraw.Draw(image)
    ink = (20, 20, 20) if sum(plain) > 380 else (230, 230, 230)
    kind = number % 3
    if kind == 0:
        font = ImageFont.load_default(int(rng.integers(11, 28)))
        for top in range(20, size[1] - 30, int(font.size * 1.5)):
            if rng.random() < 0.85:
                draw.text((30, top), _text(rng, int(size[0] / font.size / 3.2)), ink, font)
    elif kind == 1:
        font = ImageFont.load_default(15)
        for _ in range(14):
            left, top = rng.integers(0, size[0] - 160), rng.integers(0, size[1] - 70)
            box = (left, top, left + rng.integers(90, 160), top + rng.integers(30, 70))
            draw.rectangle(box, _colour(rng), ink, 2)
            draw.text((left + 8, top + 8), _text(rng, 2), ink, font)
            draw.line((left, top, *rng.integers(0, min(size), 2)), ink, 2)
    else:
        for _ in range(30):
            centre = rng.integers(0, size, 2)
            reach = int(rng.integers(10, 160))
            box = (*(centre - reach).tolist(), *(centre + reach).tolist())
            shape = (draw.ellipse, draw.rectangle)[int(rng.integers(2))]
            shape(box, _colour(rng), ink, int(rng.integers(0, 4)))
    return np.asarray(image)


def _web_page(number: int) -> str:
    rng = np.random.default_rng([3, number])
    dark = number % 3 == 0
    colours = "#16181d;color:#e4e6ea" if dark else "#fff;color:#202124"
    accent = "#{:02x}{:02x}{:02x}".format(*_colour(rng))
    parts = [
        f"<header style='background:{accent};color:#fff;padding:14px'><b>{_text(rng, 2)}</b>"
        + "".join(f" <a style='margin:9px'>{_text(rng, 1)}</a>" for _ in range(5))
        + "</header><main style='display:flex'><section style='padding:18px;flex:3'>"
    ]
    for _ in range(int(rng.integers(2, 5))):
        parts.append(f"<h2>{html.escape(_text(rng, 4))}</h2><p>{_text(rng, 60)}</p>")
        if rng.random() < 0.5:
            rows = "".join(
                "<tr>" + "".join(f"<td>{value:.3f}</td>" for value in rng.random(6)) + "</tr>"
                for _ in range(7)
            )
            parts.append(f"<table border=1 cellpadding=4>{rows}</table>")
        if rng.random() < 0.5:
            other = "#{:02x}{:02x}{:02x}".format(*_colour(rng))
            parts.append(
                f"<div style='height:120px;border-radius:12px;box-shadow:0 4px 14px #0006;"
                f"background:linear-gradient(45deg,{accent},{other})'></div>"
            )
    buttons = "".join(
        f"<button style='margin:6px;padding:8px'>{_text(rng, 2)}</button><br>" for _ in range(8)
    )
    parts.append(f"</section><aside style='padding:18px;flex:1'>{buttons}</aside></main>")
    return (
        "<!doctype html><meta charset=utf-8>"
        f"<body style='margin:0;font-family:sans-serif;background:{colours}'>" + "".join(parts)
    )


def draw_web_pages(numbers: list[int], chromium: str) -> list[Picture]:
    """Return web pages as Chromium shows them."""
    pictures = []
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            page, shot = Path(folder) / "page.html", Path(folder) / "page.png"
            page.write_text(_web_page(number))
            shot.unlink(missing_ok=True)
            size = f"{900 + 60 * (number % 9)},{600 + 40 * (number % 7)}"
            subprocess.run(
                [
                    *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu"),
                    *("--hide-scrollbars", f"--user-data-dir={folder}/profile"),
                    *(f"--window-size={size}", f"--screenshot={shot}", page.as_uri()),
                ],
                check=True,
                capture_output=True,
                timeout=120,
            )
            with Image.open(BytesIO(shot.read_bytes())) as image:
                pictures.append(np.asarray(image.convert("RGB")))
    return pictures


PICTURES: dict[str, Callable[[int], Picture]] = {"plots": draw_plot, "pages": draw_page}
