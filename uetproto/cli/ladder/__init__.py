"""`uetproto ladder` draws message sequence charts as text and as SVG."""
