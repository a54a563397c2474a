"""The search: all native, or with parts in Python."""
