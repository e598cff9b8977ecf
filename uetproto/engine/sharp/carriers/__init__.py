"""A carrier sends SHARP messages over RoCE queue pairs, or over reserved PDCs of UET."""
