"""This package plays a scenario: runs that join engines and network, scripted steps, and their results."""
