"""Reports on plans and their differences, as text, JSON and HTML."""
