"""Requests: what is to be planned, as plain data."""
