"""The plan cache: entries, and the stores that keep them."""
