"""This package computes the costs of algorithms by formulas, counts their bytes, and chooses between them."""
