"""Sweeps: plans models on many clusters."""
