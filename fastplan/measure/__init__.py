"""Measures plans on real devices and calibrates the constants of the estimates.

Only the modules that run under torchrun import torch.
"""
