"""Plans as plain data, and the formats of plan files."""
