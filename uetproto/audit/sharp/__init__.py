"""Trackers of SHARP groups, and the rules that judge their events."""
