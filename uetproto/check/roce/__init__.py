"""The fuzzing simulator of RoCE queue pairs: steps, their generator, invariants and findings."""
