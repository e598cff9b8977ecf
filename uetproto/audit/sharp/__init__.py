"""The tracker follows SHARP groups, and rules judge its events."""
