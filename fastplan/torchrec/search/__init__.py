"""The search: native, or with parts in Python."""
