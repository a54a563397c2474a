"""The `fastplan` command: a file for each command, which calls the packages that do the work."""
