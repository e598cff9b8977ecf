"""The dissector for Wireshark and tshark: `uetproto.lua`, made from the tables and a part written by hand."""

from pathlib import Path

PLUGIN = Path(__file__).with_name("uetproto.lua")
"""The one file to drop into Wireshark's plugin folder."""
