"""Measures captures, for `uetproto stats` and for plots."""
