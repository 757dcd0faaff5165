"""What is seen in a photo: its edges, the boundary map of the filters, traces of its history.

`filters` is Algorithm 2 of the paper. `measure` calls all of them.
"""
