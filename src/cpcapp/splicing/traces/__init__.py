"""What is measured in a photo."""
