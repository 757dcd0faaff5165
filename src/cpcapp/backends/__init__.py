"""Other producers of moments, one module each."""
