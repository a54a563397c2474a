"""Plans a job: search, cache, re-planning and data movement."""
