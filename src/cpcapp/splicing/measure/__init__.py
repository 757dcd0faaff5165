"""What is seen in a photo: traces of its history, and its edges."""
