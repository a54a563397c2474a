"""Replaces TorchRec's functions with faster ones."""
