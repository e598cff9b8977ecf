"""The costs of algorithms: formulas, counted bytes, and the choice between algorithms."""
