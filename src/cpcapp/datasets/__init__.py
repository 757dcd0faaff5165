"""Data sets to try the methods on."""

from cpcapp.datasets._contrast_data import ContrastData
from cpcapp.datasets._fetch import DataNotFoundError, DownloadError, UnverifiedDownloadWarning
from cpcapp.datasets._generated import mice_like, needle, synthetic
from cpcapp.datasets._leukemia import leukemia
from cpcapp.datasets._mhealth import mhealth
from cpcapp.datasets._mice_protein import mice_protein
from cpcapp.datasets._mnist_over_grass import mnist_over_grass
from cpcapp.datasets.tenx import CellCounts, read_10x

__all__ = [
    "CellCounts",
    "ContrastData",
    "DataNotFoundError",
    "DownloadError",
    "UnverifiedDownloadWarning",
    "leukemia",
    "mhealth",
    "mice_like",
    "mice_protein",
    "mnist_over_grass",
    "needle",
    "read_10x",
    "synthetic",
]
