"""Benchmarks. Each measures both sides in one run, prints a table and writes a JSON file."""
