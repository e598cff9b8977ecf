"""Capture files in the formats pcap and pcapng are read and written as streams."""
