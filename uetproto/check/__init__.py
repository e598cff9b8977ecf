"""This package checks the engines: it has numbered invariants, simulators on an adversarial wire, and fuzzers."""
