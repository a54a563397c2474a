"""Plans a job: the recipe, re-planning and what moves."""
