"""SHARP reduces vectors in the network. This package has its messages, aggregation nodes, hosts and manager."""
