"""Effective Training Time of many jobs: read incrementally, kept in a database, shown together."""
