"""Topologies: graphs of nodes and switches, the GPU matrix of a host, and their drawings."""
