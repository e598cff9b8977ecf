"""This package simulates a secure domain (TSS) under attack; it has steps, step generator, invariants, episodes."""
