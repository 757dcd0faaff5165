"""What can go wrong before a data set is read."""

from __future__ import annotations


class DataNotFoundError(FileNotFoundError):
    """A file of a data set is not here; the message says where to get it and where to put it."""


class DownloadError(DataNotFoundError):
    """A file could not be fetched whole, or is not the one it should be."""


class UnverifiedDownloadWarning(UserWarning):
    """A file was fetched of which nobody publishes a hash, so only its later changes show."""
