"""Localizers that come with the package."""
