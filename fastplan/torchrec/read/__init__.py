"""TorchRec's objects read as plain data."""
