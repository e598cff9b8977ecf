"""An aggregation node reduces vectors in a switch: groups, operations, locks and their resources."""
