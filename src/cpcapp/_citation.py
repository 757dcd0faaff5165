"""How to cite the paper."""

from __future__ import annotations

CITATION = (
    "R. Salloum, C.-C. J. Kuo, Efficient Image Splicing Localization via Contrastive Feature "
    "Extraction, 2019 (arXiv:1901.07172)"
)
