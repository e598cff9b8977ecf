"""uetproto is a packet codec and emulator for AI-cluster networks.

This module exports the public names of the library; `uetproto.schemas` (Construct), `uetproto.layers` (Scapy) and
`uetproto.columns` (NumPy) load their library only when they are imported.
"""

from uetproto.errors import LocalError, RemoteError, UetError
from uetproto.wire.packet import Fault, Layer, Packet, Trailer
from uetproto.wire.stack import decode, encode

__version__ = "0.1.0"

__all__ = [
    "Fault", "Layer", "LocalError", "Packet", "RemoteError", "Trailer", "UetError", "__version__", "decode", "encode",
]  # fmt: skip
