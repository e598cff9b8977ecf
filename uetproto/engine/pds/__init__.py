"""Packet delivery sublayer (PDS): PDCs with their states, PSN windows, acknowledgements and retransmissions."""
