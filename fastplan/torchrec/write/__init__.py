"""Results as TorchRec's objects: plans, options, statistics."""
