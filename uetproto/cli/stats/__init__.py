"""This package has the command `uetproto stats`: measurements of captures as text, JSON and plots."""
