"""SHARP in-network reduction: messages, aggregation nodes, hosts and the aggregation manager."""
