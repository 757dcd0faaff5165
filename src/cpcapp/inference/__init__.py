"""How many components there are, and how sure that is."""
