"""Parts that several tests of emulator share: groups."""

GROUP = 0xE0010203
"""224.1.2.3"""
