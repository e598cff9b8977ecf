from uetproto.errors import LocalError, RemoteError, UetError
from uetproto.wire.packet import Fault, Layer, Packet, Trailer
from uetproto.wire.stack import decode, encode

__version__: str

__all__ = [
    "Fault", "Layer", "LocalError", "Packet", "RemoteError", "Trailer", "UetError", "__version__", "decode", "encode",
]  # fmt: skip
