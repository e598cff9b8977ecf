"""uetproto is a packet codec and emulator for AI-cluster networks.

This module exports the codec and the base classes of errors. It imports each of these names only when a program first
uses the name, so a command handles signals before it loads anything else (`cli.entry`). Three modules need further
packages, and a program imports these modules by name: `uetproto.schemas` needs Construct, `uetproto.layers` needs
Scapy, and `uetproto.columns` needs NumPy.
"""

from importlib import import_module as _import_module

__version__ = "0.1.0"

_PLACES = {
    "errors": ("LocalError", "RemoteError", "UetError"),
    "wire.packet": ("Fault", "Layer", "Packet", "Trailer"),
    "wire.stack": ("decode", "encode"),
}
__all__ = [
    "Fault", "Layer", "LocalError", "Packet", "RemoteError", "Trailer", "UetError", "__version__", "decode", "encode",
]  # fmt: skip


def __getattr__(name: str) -> object:
    for place, names in _PLACES.items():
        if name in names:
            globals()[name] = found = getattr(_import_module(f"{__name__}.{place}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
