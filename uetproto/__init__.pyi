# SPDX-License-Identifier: GPL-2.0-only
from uetproto.analysis.capture import Capture, CaptureWarning
from uetproto.analysis.capture import open_captures as open  # noqa: A004  # as `gzip.open`
from uetproto.analysis.commands import collective, fabric, generate, run
from uetproto.analysis.packet_view import PacketView
from uetproto.errors import LocalError, RemoteError, UetError
from uetproto.wire.packet import Fault, Layer, Packet, Trailer
from uetproto.wire.stack import decode, encode

__version__: str

__all__ = [
    "Capture", "CaptureWarning", "Fault", "Layer", "LocalError", "Packet", "PacketView", "RemoteError", "Trailer",
    "UetError", "__version__", "collective", "decode", "encode", "fabric", "generate", "open", "run",
]  # fmt: skip
