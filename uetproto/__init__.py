# SPDX-License-Identifier: GPL-2.0-only
"""uetproto is a packet codec and emulator for AI-cluster networks.

This module exports the codec, `open` for captures, and the base classes of errors. It imports each of these names only
when a program first uses the name, so a command handles signals before it loads anything else (`cli.entry`). Three
modules need further
packages, and a program imports these modules by name: `uetproto.schemas` needs Construct, `uetproto.layers` needs
Scapy, and `uetproto.columns` needs NumPy.
"""

from importlib import import_module as _import_module

__version__ = "0.9.0"

_PLACES = {
    "errors": ("LocalError", "RemoteError", "UetError"),
    "wire.packet": ("Fault", "Layer", "Packet", "Trailer"),
    "wire.stack": ("decode", "encode"),
    "analysis.capture": ("Capture", "CaptureWarning"),
    "analysis.commands": ("collective", "fabric", "generate", "run"),
    "analysis.packet_view": ("PacketView",),
}
_RENAMED = {"open": ("analysis.capture", "open_captures")}
"""Names that their modules cannot have, because Python has them too."""
__all__ = [
    "Capture", "CaptureWarning", "Fault", "Layer", "LocalError", "Packet", "PacketView", "RemoteError", "Trailer",
    "UetError", "__version__", "collective", "decode", "encode", "fabric", "generate", "open", "run",
]  # fmt: skip


def __getattr__(name: str) -> object:
    place, there = _RENAMED.get(name) or next(
        ((place, name) for place, names in _PLACES.items() if name in names), ("", "")
    )
    if place:
        globals()[name] = found = getattr(_import_module(f"{__name__}.{place}"), there)
        return found
    if name.startswith("_"):  # asked by machines, which need no suggestion
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    similar = _import_module(f"{__name__}.errors").similar(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{similar}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
