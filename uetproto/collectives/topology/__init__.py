"""Describes topologies: graphs of nodes and switches, and the GPU matrix of a host. Draws schedules."""
