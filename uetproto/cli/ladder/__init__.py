"""`uetproto ladder`: message sequence charts as text and as SVG."""
