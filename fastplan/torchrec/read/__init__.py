"""Reads TorchRec's objects as plain data."""
