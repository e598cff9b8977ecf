"""This package has the command `uetproto scenario`."""
