"""The header tables are the place to start: one module for each layer, in the order of the specification."""
