"""A file becomes a photo: its pixels, its JPEG facts, what the file says."""
