"""Whether native planning agrees with the TorchRec of this process: known, proven, or neither."""
