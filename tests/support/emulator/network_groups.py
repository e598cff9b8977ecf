"""Parts that tests of emulator share, first needed for groups."""

GROUP = 0xE0010203
"""224.1.2.3"""
