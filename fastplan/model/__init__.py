"""The words of planning as frozen data: requests, clusters, jobs, plans."""
