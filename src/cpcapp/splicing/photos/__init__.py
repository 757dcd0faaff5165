"""What comes in: image files and their pixels."""
