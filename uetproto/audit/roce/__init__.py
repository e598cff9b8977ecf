"""This package has the tracker of RoCE queue pairs, and the rules that judge its events."""
