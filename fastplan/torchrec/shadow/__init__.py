"""Shadow mode: each plan is compared with the one that TorchRec's own planner makes."""
