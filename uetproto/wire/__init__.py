"""The codec converts the bytes of a frame to named values and back, by one table for each header."""
