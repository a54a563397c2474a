"""Sweeps: many jobs at once."""
