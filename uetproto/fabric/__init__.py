"""This package runs the traffic patterns by which congestion control is judged: many flows in one fabric (cms.md
§11)."""
