"""Custom costs and objectives, written in Python and compiled so that the core can call them."""
