"""Making splices with exact masks."""
