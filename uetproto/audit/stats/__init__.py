"""This package measures captures, for `uetproto stats` and for plots."""
