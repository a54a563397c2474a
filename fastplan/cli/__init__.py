"""The `fastplan` command: one file per command, thin over the rooms that do the work."""
