"""TorchRec's functions replaced by fast ones."""
