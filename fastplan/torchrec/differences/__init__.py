"""Differences between TorchRec versions, a file each, told by what TorchRec has."""
