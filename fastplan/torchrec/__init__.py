"""The only package that knows TorchRec's planner. It reads and writes TorchRec's objects."""
