"""This package has the commands `uetproto export` and `query`, and chosen fields of `uetproto dissect`."""
