"""What was measured in a photo, to a region and a verdict."""
