"""`uetproto bench`: measurements of this machine, one file a subject."""
