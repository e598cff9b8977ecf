"""This package has the command `uetproto collective`: options, runs, reports and plots."""
