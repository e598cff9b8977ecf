"""This package simulates RoCE queue pairs; it has the steps, the step generator, the invariants and the episodes."""
