"""Measures this machine (`uetproto bench`): one file for each subject."""
