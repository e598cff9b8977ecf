"""This package has the dissector for Wireshark and tshark, `uetproto.lua`: generated tables and a handwritten part."""

from pathlib import Path

PLUGIN = Path(__file__).with_name("uetproto.lua")
"""Path of the plugin, the one file to copy to Wireshark's plugin folder."""
