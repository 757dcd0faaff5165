"""From the boundary map and the traces to a region."""
