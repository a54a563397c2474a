"""Plans on real devices: what a step takes there, and the constants that estimates should use.

Results, statistics and fits are free of torch; what runs under torchrun is not.
"""
