"""Plans that follow older ones: what differs, what may stay, and what must move."""
