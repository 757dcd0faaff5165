"""The one eigenproblem."""
