"""Finding the files of a data set: at hand, in the cache, or at their official source."""

from __future__ import annotations

import os
import sys
import tarfile
import warnings
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

PathLike = str | os.PathLike[str]

_RETRIES = 2
_TIMEOUT = 30.0  # seconds without a byte


class DataNotFoundError(FileNotFoundError):
    """A file of a data set is not here; the message says where to get it and where to put it."""


class DownloadError(DataNotFoundError):
    """A file could not be fetched whole, or is not the one it should be."""


class UnverifiedDownloadWarning(UserWarning):
    """A file was fetched of which nobody publishes a hash."""


@dataclass(frozen=True)
class RemoteFile:
    """A file at its official source: its place in a data folder, and its hash if one is known."""

    name: str
    url: str
    published_hash: str | None


MNIST = RemoteFile(
    "mnist/mnist.npz",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",  # by Keras
)
MICE = RemoteFile(
    "mice_protein/MiceProtein.arff",
    "https://www.openml.org/data/v1/download/17928620/MiceProtein.arff",
    "md5:3c479a6885bfa0438971388283a1ce32",  # by OpenML (data set 40966), which has MD5 only
)
MHEALTH = RemoteFile(
    "mhealth/MHEALTHDATASET.zip",
    "https://archive.ics.uci.edu/static/public/319/mhealth+dataset.zip",
    # By several projects that pin the archive independently; UCI itself publishes none.
    "sha256:16ad0ce709f3f00df18f348610d15bce0884b79e2143f57f446493673f02b8e0",
)


def tenx_sample(sample: str) -> RemoteFile:
    """Return the filtered matrix of a sample of Zheng et al. 2017 at 10x Genomics."""
    archive = f"{sample}_filtered_gene_bc_matrices.tar.gz"
    url = f"https://cf.10xgenomics.com/samples/cell-exp/1.1.0/{sample}/{archive}"
    return RemoteFile(f"leukemia/{archive}", url, None)


def home_folders(data_home: PathLike | None = None) -> list[Path]:
    """Return ``data_home`` alone if it is given; else CPCAPP_DATA, then the cache."""
    if data_home is not None:
        return [Path(data_home).expanduser()]
    cache = os.environ.get("CPCAPP_CACHE")
    if not cache:
        # Without pooch nothing was ever put into the cache.
        has_pooch = find_spec("pooch") is not None
        cache = str(import_module("pooch").os_cache("cpcapp")) if has_pooch else "~/.cache/cpcapp"
    named = [os.environ.get("CPCAPP_DATA"), cache]
    # Absolute, so that paths still hold when a program goes to another folder.
    return [Path(folder).expanduser().absolute() for folder in named if folder]


def find(data_home: PathLike | None, *patterns: str) -> list[Path]:
    """Return what fits one of the patterns, in the order of the folders, then of the patterns."""
    homes = home_folders(data_home)
    return [path for home in homes for pattern in patterns for path in sorted(home.glob(pattern))]


def fetch(file: RemoteFile, data_home: PathLike | None = None) -> Path:
    """Return the path of a file, fetched into the cache, or into ``data_home``, if need be.

    In ``data_home`` and ``CPCAPP_DATA`` a file is taken as it is. In the cache its hash is
    checked each time, and a file that is not whole is fetched again.
    """
    *named, folder = home_folders(data_home)
    for home in [folder] if data_home is not None else named:
        if (home / file.name).is_file():
            return home / file.name
    target = folder / file.name
    is_new = not target.is_file()
    advice = f"get that file on another machine and put it at {target}"
    problem = ""
    if os.environ.get("CPCAPP_OFFLINE") == "1":
        problem = "CPCAPP_OFFLINE=1 forbids to fetch it"
    elif not all(map(find_spec, ("pooch", "requests", "tqdm"))):
        problem = "install what fetching needs with pip install 'cpcapp[datasets]' to have it"
    if problem and is_new:
        raise DataNotFoundError(
            f"{target.name} is not here; {problem} from {file.url}, or {advice}"
        )
    if problem:
        return target
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")  # it tells of each file
    remote = pooch.create(
        folder,
        base_url="",
        registry={file.name: file.published_hash},
        urls={file.name: file.url},
        retry_if_failed=_RETRIES,
    )
    on_terminal = sys.stderr is not None and sys.stderr.isatty()
    downloader = pooch.HTTPDownloader(on_terminal, chunk_size=1 << 16, timeout=_TIMEOUT)
    try:
        remote.fetch(file.name, downloader=downloader)
    except (OSError, ValueError) as error:
        unreachable = isinstance(error, requests.ConnectionError | requests.Timeout)
        reason = "no connection" if unreachable else " ".join(str(error).split())
        raise DownloadError(
            f"{target.name} is not here and can't be fetched from {file.url} ({reason}); {advice}"
        ) from error
    if file.published_hash is None and is_new:
        # All such files are archives. The network of a hotel sends a page instead.
        if not tarfile.is_tarfile(target):
            target.unlink()
            raise DownloadError(
                f"{file.url} did not send an archive; try again from another network"
            )
        warnings.warn(
            f"nobody is known to publish a hash of {file.url}, so {target.name} can't be verified; "
            f"its SHA-256 is {pooch.file_hash(target)}",
            UnverifiedDownloadWarning,
            stacklevel=2,
        )
    return target
