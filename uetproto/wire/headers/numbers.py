# SPDX-License-Identifier: GPL-2.0-only
"""This module has the numbers by which UDP and IP announce UET, RoCE and trimmed packets (wire.md §1).

Settings of whoever reads or makes packets may replace them.
"""

UDP_PORT = 4793
IP_PROTOCOL = 253
ROCE_PORT = 4791
TRIMMED_DSCP = frozenset({16, 18})  # trimmed, trimmed at the last hop (cms.md §1)
