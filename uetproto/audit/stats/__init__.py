"""This package measures the traffic in captures, for `uetproto stats` and for plots."""
