"""What the ids of a model look like: distinct ids, cache misses and frequencies from batches."""
