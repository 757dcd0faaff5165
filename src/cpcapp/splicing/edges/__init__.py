"""Structured edge detection: where people would draw the outline of things.

P. Dollár, C. L. Zitnick, "Structured forests for fast edge detection", ICCV 2013. The trainer and
the forest are ours, the engine that runs it is OpenCV's.
"""

from cpcapp.splicing.edges.detector import (
    BEST_THRESHOLD,
    EdgeDetector,
    detect_edges,
    thin_edges,
)
from cpcapp.splicing.edges.forest import Forest, ForestError

__all__ = ["BEST_THRESHOLD", "EdgeDetector", "Forest", "ForestError", "detect_edges", "thin_edges"]
