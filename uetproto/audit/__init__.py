"""Passive trackers and the table of rules that judge a capture (interfaces.md §8)."""
