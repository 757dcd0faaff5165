"""Traces: what is measured in a photo, such as edges, the colour mosaic and JPEG's grid."""
