# SPDX-License-Identifier: GPL-2.0-only
"""The packet delivery sublayer (PDS) has PDCs with their states, PSN windows, acknowledgements and retransmissions."""
