# SPDX-License-Identifier: GPL-2.0-only
"""This package reads and writes capture files in the formats pcap and pcapng, one record at a time."""
