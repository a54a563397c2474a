"""Benchmarks: each prints a table, both sides measured in one run, and writes JSON beside it."""
