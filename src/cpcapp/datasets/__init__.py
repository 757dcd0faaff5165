"""Data sets to try the methods on."""

from cpcapp.datasets._contrast_data import ContrastData
from cpcapp.datasets._generated import mice_like, needle, synthetic

__all__ = ["ContrastData", "mice_like", "needle", "synthetic"]
