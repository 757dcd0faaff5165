"""Files, child processes, text and threads."""
