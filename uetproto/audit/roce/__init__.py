"""This package has trackers of RoCE queue pairs, and the rules that judge their events."""
