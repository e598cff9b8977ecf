"""The fuzzing simulator of UET: steps, their generator, invariants and the shadow state that they compare with."""
