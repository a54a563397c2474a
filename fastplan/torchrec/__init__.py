"""Everything that knows TorchRec's planner."""
