"""Structured edge detection: where people would draw the outlines of objects.

P. Dollár, C. L. Zitnick, "Structured forests for fast edge detection", ICCV 2013. The trainer, the
forest and the engine that runs it are ours. OpenCV computes the features.
"""

from cpcapp.splicing.measure.edges.detector import (
    BEST_THRESHOLD,
    EdgeDetector,
    detect_edges,
    thin_edges,
)
from cpcapp.splicing.measure.edges.forest import Forest, ForestError

__all__ = ["BEST_THRESHOLD", "EdgeDetector", "Forest", "ForestError", "detect_edges", "thin_edges"]
