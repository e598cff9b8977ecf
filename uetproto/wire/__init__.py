"""The codec turns bytes into named values and back; one table for each header is the source of all it knows."""
