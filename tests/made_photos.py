"""Files of photos with what cameras and editors write into them."""

from __future__ import annotations

import io
import struct

from PIL import Image


def exif_with_thumbnail(picture: Image.Image) -> bytes:
    """EXIF data whose second directory is that of a thumbnail."""
    file = io.BytesIO()
    picture.save(file, "JPEG", quality=80)
    content = file.getvalue()
    first = struct.pack(">H HHI HH I", 1, 274, 3, 1, 1, 0, 26)
    second = struct.pack(">H HHII HHII I", 2, 513, 4, 1, 56, 514, 4, 1, len(content), 0)
    return b"Exif\0\0MM\0*" + struct.pack(">I", 8) + first + second + content
