"""Costs and objectives that users write in Python, compiled so that the core can call them."""
