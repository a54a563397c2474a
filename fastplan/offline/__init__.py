"""Planning from specs: on any machine, without TorchRec."""
