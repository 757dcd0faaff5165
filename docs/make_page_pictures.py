"""Make the pictures of the page and of a report in docs/images, from what the tests saw.

    python docs/make_page_pictures.py

Runs the tests of the page in a browser, which take pictures of it, and keeps some of these.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

ROOT = Path(__file__).parents[1]
TESTS = ("tests/web/test_browser.py", "tests/web/test_tables_page.py")
# What a test calls it, what it is called in docs/images, and how much of its height is shown.
KEPT = (
    ("signs.png", "page-photo.jpg", 1150),
    ("tables-synthetic.png", "page-tables.jpg", 1150),
    ("report.png", "report.jpg", 740),
)
WIDTH = 1000


def main() -> None:
    """Run the tests and keep the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *TESTS],
            check=True,
            cwd=ROOT,
            env={**os.environ, "CPCAPP_SCREENSHOTS": folder},
        )
        for taken, name, height in KEPT:
            with Image.open(Path(folder) / taken) as picture:
                shown = min(height, picture.height)
                top = picture.convert("RGB").crop((0, 0, picture.width, shown))
            size = WIDTH, round(top.height * WIDTH / top.width)
            small = top.resize(size, Image.Resampling.LANCZOS)
            small.save(ROOT / "docs" / "images" / name, quality=88, optimize=True)


if __name__ == "__main__":
    main()
