# SPDX-License-Identifier: GPL-2.0-only
"""This package tells of each packet what the packets around it say: its PDC, its answers, retransmissions, times, its
message. docs/reference/analysis.md defines each name; the Wireshark plugin computes the same.

analyser.py          `Analyser` takes the packets of a capture in their order and returns the row of each
pdcs.py              which PDC a packet belongs to
sender.py            one direction of a PDC: what was sent, acknowledged and refused
messages.py          messages: first and last packet, missing bytes, time
links.py             requests that belong to a request of the other end: rendezvous, restarts
queue_pairs.py       streams of RoCE: two directions of a queue pair
copies.py            copies of a packet at several interfaces
late.py              values of a packet that only later packets tell
"""
