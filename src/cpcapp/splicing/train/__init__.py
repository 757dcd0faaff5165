"""Training a localizer."""
