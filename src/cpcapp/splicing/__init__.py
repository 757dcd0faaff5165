"""Find the seam in a spliced photo."""
