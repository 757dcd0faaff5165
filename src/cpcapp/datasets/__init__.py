"""Data sets to try the methods on."""

from cpcapp.datasets._contrast_data import ContrastData
from cpcapp.datasets._generated import mice_like, needle, synthetic
from cpcapp.datasets._mice_protein import mice_protein
from cpcapp.datasets._mnist_over_grass import mnist_over_grass
from cpcapp.datasets._places import DataNotFoundError

__all__ = [
    "ContrastData",
    "DataNotFoundError",
    "mice_like",
    "mice_protein",
    "mnist_over_grass",
    "needle",
    "synthetic",
]
