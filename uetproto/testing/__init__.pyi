# SPDX-License-Identifier: GPL-2.0-only
from uetproto.testing.adapters.adapter import Adapter, AdapterFault, Capabilities, WorkRefused
from uetproto.testing.adapters.engines import PdcEngine
from uetproto.testing.adapters.fep import FepEngine
from uetproto.testing.adapters.library import LibraryAdapter
from uetproto.testing.adapters.process import ProcessAdapter
from uetproto.testing.adapters.roce import RoceEngine
from uetproto.testing.adapters.sharp_node import SharpNodeEngine
from uetproto.testing.adapters.tss import TssEngine
from uetproto.testing.machines.machine import ProtocolMachine
from uetproto.testing.machines.pdc import PdcMachine
from uetproto.testing.machines.roce import RoceMachine
from uetproto.testing.machines.ses import SesInitiatorMachine, SesTargetMachine
from uetproto.testing.machines.sharp_node import SharpNodeMachine
from uetproto.testing.machines.tss import TssMachine
from uetproto.testing.machines.world import WorldFailure
from uetproto.testing.strategies.captures import captures
from uetproto.testing.strategies.exchanges import ExchangedFrame, PlayedExchange, exchanges
from uetproto.testing.strategies.headers import headers
from uetproto.testing.strategies.messages import messages
from uetproto.testing.strategies.packets import frames, packets
from uetproto.testing.strategies.scenarios import scenarios
from uetproto.testing.strategies.spoilt import Spoilt
from uetproto.testing.strategies.tunnels import tunnelled

__all__ = [
    "Adapter",
    "AdapterFault",
    "Capabilities",
    "ExchangedFrame",
    "FepEngine",
    "LibraryAdapter",
    "PdcEngine",
    "PdcMachine",
    "PlayedExchange",
    "ProcessAdapter",
    "ProtocolMachine",
    "RoceEngine",
    "RoceMachine",
    "SesInitiatorMachine",
    "SesTargetMachine",
    "SharpNodeEngine",
    "SharpNodeMachine",
    "Spoilt",
    "TssEngine",
    "TssMachine",
    "WorkRefused",
    "WorldFailure",
    "captures",
    "exchanges",
    "frames",
    "headers",
    "messages",
    "packets",
    "scenarios",
    "tunnelled",
]
