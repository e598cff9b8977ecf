"""A SHARP host joins groups and runs operations: endpoint, groups, locks and flow control."""
