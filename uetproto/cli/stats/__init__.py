"""`uetproto stats`: measurements of captures as text, JSON and plots."""
