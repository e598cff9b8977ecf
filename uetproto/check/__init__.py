"""What any run of the engines must pass: numbered invariants, an adversarial wire, and a world to run in."""
