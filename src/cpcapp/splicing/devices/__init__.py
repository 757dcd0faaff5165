"""Localizing on a GPU: the parts of a localizer that a device can run; needs the extra torch."""
