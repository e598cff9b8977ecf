"""What an algorithm costs: formulas, counted bytes, and the choice between algorithms."""
