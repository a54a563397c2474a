"""Moves of tables in a running job, for any two plans."""
