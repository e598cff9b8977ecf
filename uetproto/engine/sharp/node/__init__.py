"""The SHARP aggregation node of a switch: groups, operations, locks and outstanding tables."""
