"""Which files can be fetched, from where, and how we know that they are the right ones."""

from __future__ import annotations

from dataclasses import dataclass

_TENX = "https://cf.10xgenomics.com/samples/cell-exp/1.1.0"


@dataclass(frozen=True)
class RemoteFile:
    """A file at its official source.

    Attributes
    ----------
    name : str
        Where it lies within a data folder.
    url : str
    published_hash : str or None
        ``"sha256:..."`` or ``"md5:..."``. None where nobody is known to publish one: the hash is
        then recorded at the first download and checked from then on.
    hash_source : str
        Who publishes the hash.
    magic : bytes
        How its content begins. Where no hash is known, this at least tells it from the page of a
        hotel's network that answers in its place.
    max_bytes : int
        Longer answers are refused, whatever the server says of their length.
    """

    name: str
    url: str
    published_hash: str | None
    hash_source: str = ""
    magic: bytes = b""
    # Far above the largest, of some hundred megabytes.
    max_bytes: int = 1 << 30


MNIST = RemoteFile(
    "mnist/mnist.npz",
    "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz",
    "sha256:731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1",
    "Keras",
)
MICE = RemoteFile(
    "mice_protein/MiceProtein.arff",
    "https://www.openml.org/data/v1/download/17928620/MiceProtein.arff",
    "md5:3c479a6885bfa0438971388283a1ce32",
    "OpenML, which publishes MD5 only (data set 40966)",
)
MHEALTH = RemoteFile(
    "mhealth/MHEALTHDATASET.zip",
    "https://archive.ics.uci.edu/static/public/319/mhealth+dataset.zip",
    "sha256:16ad0ce709f3f00df18f348610d15bce0884b79e2143f57f446493673f02b8e0",
    "several projects that pin the archive of UCI independently; UCI itself publishes none",
)


def tenx_sample(sample: str) -> RemoteFile:
    """Return the filtered matrix of a sample of Zheng et al. 2017 at 10x Genomics.

    Examples
    --------
    >>> tenx_sample("aml027_pre_transplant").name
    'leukemia/aml027_pre_transplant_filtered_gene_bc_matrices.tar.gz'
    """
    archive = f"{sample}_filtered_gene_bc_matrices.tar.gz"
    gzip_magic = b"\x1f\x8b"
    return RemoteFile(f"leukemia/{archive}", f"{_TENX}/{sample}/{archive}", None, magic=gzip_magic)
