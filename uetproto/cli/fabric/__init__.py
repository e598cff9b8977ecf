"""This package has the command `uetproto fabric`: options, words, tables and plots."""
