"""SHARP reduces vectors in the network: messages, aggregation nodes, hosts and the aggregation manager."""
