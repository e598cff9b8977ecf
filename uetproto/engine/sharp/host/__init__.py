"""The SHARP endpoint of a host: groups, operations, locks and flow control."""
