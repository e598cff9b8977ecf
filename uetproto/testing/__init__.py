# SPDX-License-Identifier: GPL-2.0-only
"""This package is for whoever tests an implementation of his own: Hypothesis strategies for everything on the wire, and
machines that drive the implementation through an adapter.

    from hypothesis import given
    from uetproto.testing import packets

    @given(packets(mode="rud"))
    def test_my_stack(packet): ...

testing.md describes the strategies, machines.md the machines. Hypothesis is installed by the extra `testing`;
a name is imported at its first use.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

from uetproto.errors import missing_package

if _find_spec("hypothesis") is None:
    raise missing_package(__name__, "hypothesis", "testing")

_PLACES = {
    "adapters.adapter": ("Adapter", "AdapterFault", "Capabilities", "WorkRefused"),
    "adapters.engines": ("PdcEngine",),
    "adapters.fep": ("FepEngine",),
    "adapters.library": ("LibraryAdapter",),
    "adapters.process": ("ProcessAdapter",),
    "adapters.roce": ("RoceEngine",),
    "adapters.sharp_node": ("SharpNodeEngine",),
    "adapters.tss": ("TssEngine",),
    "machines.machine": ("ProtocolMachine",),
    "machines.pdc": ("PdcMachine",),
    "machines.roce": ("RoceMachine",),
    "machines.ses": ("SesInitiatorMachine", "SesTargetMachine"),
    "machines.sharp_node": ("SharpNodeMachine",),
    "machines.tss": ("TssMachine",),
    "machines.world": ("WorldFailure",),
    "strategies.captures": ("captures",),
    "strategies.exchanges": ("PlayedExchange", "ExchangedFrame", "exchanges"),
    "strategies.headers": ("headers",),
    "strategies.messages": ("messages",),
    "strategies.packets": ("frames", "packets"),
    "strategies.scenarios": ("scenarios",),
    "strategies.spoilt": ("Spoilt",),
    "strategies.tunnels": ("tunnelled",),
}
__all__ = [
    "Adapter", "AdapterFault", "Capabilities", "ExchangedFrame", "FepEngine", "LibraryAdapter", "PdcEngine",
    "PdcMachine", "PlayedExchange", "ProcessAdapter", "ProtocolMachine", "RoceEngine", "RoceMachine",
    "SesInitiatorMachine", "SesTargetMachine", "SharpNodeEngine", "SharpNodeMachine", "Spoilt", "TssEngine",
    "TssMachine", "WorkRefused", "WorldFailure", "captures",
    "exchanges", "frames", "headers", "messages", "packets", "scenarios", "tunnelled",
]  # fmt: skip


def __getattr__(name: str) -> object:
    for place, names in _PLACES.items():
        if name in names:
            globals()[name] = found = getattr(_import_module(f"{__name__}.{place}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
