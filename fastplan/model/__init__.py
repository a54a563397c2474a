"""Frozen data types of planning: requests, clusters, jobs and plans."""
