"""Plans as plain data: what is where, what it costs, and how two of them differ."""
