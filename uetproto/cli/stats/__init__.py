"""This package has the command `uetproto stats`, which prints measurements of captures as text or JSON, and plots
them."""
