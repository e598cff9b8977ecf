"""`uetproto collective`: options, runs, reports and plots."""
