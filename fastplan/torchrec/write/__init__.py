"""Writes results as TorchRec's objects: plans, options, statistics."""
