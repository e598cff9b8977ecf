"""This package has trackers of secure domains (TSS), and the rules that judge their events."""
