"""This package has the Hypothesis strategies of `uetproto.testing`, which draw what is legal, or has one fault."""
