"""This package has the command `uetproto completion`, and what shells complete."""
