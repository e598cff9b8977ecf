"""This package has the command `uetproto report`, which writes a page of a capture."""
