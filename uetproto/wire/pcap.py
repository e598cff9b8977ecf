"""This module is the public name of capture files: `from uetproto.wire.pcap import open_capture`.

The readers and writers are in `uetproto.wire.capture`.
"""

from uetproto.wire.capture.pcap import *  # noqa: F403
from uetproto.wire.capture.pcap import __all__ as __all__
