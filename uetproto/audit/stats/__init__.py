"""Measurements of a capture: what `uetproto stats` prints and what the plots show."""
