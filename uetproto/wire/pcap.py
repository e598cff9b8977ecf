# SPDX-License-Identifier: GPL-2.0-only
"""This module is the public name of the readers and writers of capture files in `uetproto.wire.capture`."""

from uetproto.wire.capture.pcap import *  # noqa: F403
from uetproto.wire.capture.pcap import __all__ as __all__
