"""Records of a capture become observed packets; this package finds out where each header, payload and trailer ends."""
