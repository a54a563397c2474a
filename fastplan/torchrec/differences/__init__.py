"""Differences between TorchRec versions, a file each, detected by what TorchRec has."""
