"""Plays a scenario: the worlds that join engines and network, scripted steps, and their results."""
