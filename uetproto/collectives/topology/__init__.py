"""This package has topologies (graphs of nodes and switches), the GPU matrix of a host, and drawings of schedules."""
