"""This package has trackers of semantic (SES) messages, and the rules that judge their events."""
