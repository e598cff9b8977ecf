"""The tables of the headers, one module a layer: what a newcomer reads first."""
