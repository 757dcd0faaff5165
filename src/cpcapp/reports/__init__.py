"""Pages and documents that are written to disk: one set of templates, one style sheet.

It lays out what it is given, and knows nothing of photos that were spliced or of experiments.
"""

from __future__ import annotations

from cpcapp.reports.rendering import data_uri, render

__all__ = ["CITATION", "data_uri", "render"]

CITATION = (
    "R. Salloum, C.-C. J. Kuo, Efficient Image Splicing Localization via Contrastive Feature "
    "Extraction, 2019 (arXiv:1901.07172)"
)
