"""The fuzzing world of RoCE queue pairs: steps, their generator, invariants and findings."""
