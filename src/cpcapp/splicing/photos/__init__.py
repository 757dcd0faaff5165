"""Image files: reading them, their pixels, JPEG."""
