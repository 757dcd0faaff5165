"""Photos with known splices: Columbia, CASIA, Nimble, and folders of your own.

Each function opens a data set in the layout in which it is published and returns a
`cpcapp.splicing.samples.SampleSet`: photos and masks that are read when asked for. In a mask True
is what was pasted, whatever the files say it by. A file that is missing, broken or not to be
trusted is left out and listed in ``problems`` with the reason; the rest can be used.

Reading photos needs the extra ``splicing``: ``pip install "cpcapp[splicing]"``.
"""

from cpcapp.datasets.photos._casia import casia, make_casia_masks
from cpcapp.datasets.photos._columbia import columbia
from cpcapp.datasets.photos._folders import folder_pair, photo_files
from cpcapp.datasets.photos._gathering import readable
from cpcapp.datasets.photos._nimble import nimble
from cpcapp.datasets.photos._opening import open_photos

__all__ = [
    "casia",
    "columbia",
    "folder_pair",
    "make_casia_masks",
    "nimble",
    "open_photos",
    "photo_files",
    "readable",
]
