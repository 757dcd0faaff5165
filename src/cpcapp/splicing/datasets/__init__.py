"""Photos with known splices: Columbia, CASIA, Nimble, and folders of your own.

Each function opens a data set in the layout in which it is published and returns a
`cpcapp.splicing.photo.samples.SampleSet`: photos and masks that are read when asked for. In a mask
True is the pasted part, whatever the colours of the file. A file that is missing, broken or not to
be trusted is left out and listed in ``problems`` with the reason; the rest can be used.

Reading photos needs the extra ``splicing``: ``pip install "cpcapp[splicing]"``.
"""

from cpcapp.splicing.datasets.casia import casia, make_casia_masks
from cpcapp.splicing.datasets.collector import read_samples
from cpcapp.splicing.datasets.columbia import columbia
from cpcapp.splicing.datasets.folders import folder_pair, open_photos, photo_files
from cpcapp.splicing.datasets.nimble import nimble

__all__ = [
    "casia",
    "columbia",
    "folder_pair",
    "make_casia_masks",
    "nimble",
    "open_photos",
    "photo_files",
    "read_samples",
]
