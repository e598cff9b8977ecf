"""uetproto is a packet codec and emulator for AI-cluster networks.

This module exports the codec and the base classes of errors. The modules `uetproto.schemas`, `uetproto.layers` and
`uetproto.columns` need Construct, Scapy and NumPy; a program imports them by name.
"""

from uetproto.errors import LocalError, RemoteError, UetError
from uetproto.wire.packet import Fault, Layer, Packet, Trailer
from uetproto.wire.stack import decode, encode

__version__ = "0.1.0"

__all__ = [
    "Fault", "Layer", "LocalError", "Packet", "RemoteError", "Trailer", "UetError", "__version__", "decode", "encode",
]  # fmt: skip
