# SPDX-License-Identifier: GPL-2.0-only
"""This package has `uetproto.lua`, the dissector for Wireshark and tshark: generated tables and a handwritten part."""

from pathlib import Path

PLUGIN = Path(__file__).with_name("uetproto.lua")
"""Path of the plugin, which is the only file to copy to the plugin folder of Wireshark."""
