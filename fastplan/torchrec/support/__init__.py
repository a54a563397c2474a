"""Whether native planning stands for the TorchRec of this process: known, proven, or neither."""
