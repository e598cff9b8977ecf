"""The SHARP aggregation manager: trees, jobs, grants and the agents that it programs."""
