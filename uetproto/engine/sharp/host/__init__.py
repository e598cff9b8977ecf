"""This package is the SHARP host, which joins groups and runs collectives on them."""
