"""From region and boundary to a verdict."""
