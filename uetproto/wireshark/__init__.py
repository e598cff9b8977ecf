"""The dissector for Wireshark and tshark is `uetproto.lua`, made from the tables and a part written by hand."""

from pathlib import Path

PLUGIN = Path(__file__).with_name("uetproto.lua")
"""Path of the one file that goes into Wireshark's plugin folder."""
