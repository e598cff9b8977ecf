"""This package says headers in words, which `uetproto dissect`, ladders and Scapy layers print in one line."""
