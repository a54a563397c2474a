"""The room that knows TorchRec's planner: its objects in, its objects out."""
