# SPDX-License-Identifier: GPL-2.0-only
"""Each header form has a Scapy layer: `from uetproto.layers import PdsRudReq, SesRequestStdSom`.

Each layer is made from a table of `wire/headers`. Its name is the name of the form in CamelCase. The import binds UET
to UDP and to native IP. `bind_roce()`, `bind_sharp()` and `bind_mcast()` bind the other protocols.

The import makes no layer. All of them are made when a program first names one, dissects a packet of UET, or reads
Scapy's list of layers, as `ls()` and `explore` do.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any

import scapy.layers
from scapy.config import conf

from uetproto.errors import similar
from uetproto.layers import binding  # noqa: F401  binds UET

_PARTS = ("base", "uet", "roce", "sharp", "messages", "replies", "session")
_NAMES = {
    "base": ["LayerError"],
    "messages": ["UetPackets", "uet_message"],
    "replies": ["UetResponder", "uet_reply"],
    "session": ["PdcSession", "UetMessage"],
}
"""Names that the package has from its modules, besides all those of `uet`."""


def __getattr__(name: str) -> object:
    if name in _PARTS:
        return import_module(f"{__name__}.{name}")
    if name == "__all__" or not name.startswith("_"):
        known = _made()
        if name in known:
            return known[name]
        hint = similar(name, known["__all__"])
    else:
        hint = ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def _made() -> dict[str, Any]:
    """Return the names of this package, which are complete when all layers are made."""
    known = globals()
    if "__all__" not in known:
        conf.layers.__class__ = _LAYERS_LIST
        sys.modules[__name__].__class__ = ModuleType
        uet = import_module(f"{__name__}.uet")
        names = {part: import_module(f"{__name__}.{part}") for part in _PARTS}
        known |= {name: getattr(uet, name) for name in uet.__all__}
        known |= {name: getattr(names[part], name) for part, group in _NAMES.items() for name in group}
        _introduce()
        known["__all__"] = [*uet.__all__, *(name for group in _NAMES.values() for name in group)]
    return known


def _introduce() -> None:
    """Give modules and layers names below `scapy.layers`: Scapy's `explore` and `load_layer` know no others."""
    known = conf.layers.ldict
    groups = (globals()[f"{name}LAYERS"] for name in ("", "ROCE_", "SHARP_", "MCAST_"))
    known[__name__] = [layer for group in groups for layer in group.values()]
    for name in [name for name in sys.modules if name == __name__ or name.startswith(f"{__name__}.")]:
        classes = known.pop(name, None)
        for package in ("scapy.layers.uetproto", f"scapy.layers.{__name__}"):
            alias = package + name.removeprefix(__name__)
            sys.modules[alias] = sys.modules[name]
            if classes is not None:
                known[alias] = classes


# Before the layers are made -------------------------------------------------------------------------------------------

_LAYERS_LIST: Any = type(conf.layers)


class _UnmadePackage(ModuleType):
    """This package before the layers are made: Scapy's `load_layer` and `vars()` read its dictionary."""

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        return _made()


class _UnmadeLayers(_LAYERS_LIST):  # type: ignore[misc]
    """Scapy's list of layers before the layers of UET are made: whoever reads the list has them made."""

    def __iter__(self) -> Iterator[Any]:
        _made()
        return iter(self)

    @property
    def ldict(self) -> dict[str, list[Any]]:
        _made()
        found: dict[str, list[Any]] = self.ldict
        return found

    def register(self, layer: Any) -> None:
        """Add a layer that somebody else makes."""
        self.__class__ = _LAYERS_LIST
        self.register(layer)
        self.__class__ = _UnmadeLayers


conf.layers.__class__ = _UnmadeLayers
sys.modules[__name__].__class__ = _UnmadePackage
scapy.layers.uetproto = sys.modules[__name__]
for _package in ("scapy.layers.uetproto", f"scapy.layers.{__name__}"):
    sys.modules[_package] = sys.modules[__name__]
