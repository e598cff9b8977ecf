# SPDX-License-Identifier: GPL-2.0-only
"""A user's tests with the strategies and the machines, which `mypy --strict` accepts."""

from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given
from hypothesis.strategies import SearchStrategy

from uetproto import Layer, Packet, decode, encode
from uetproto.testing import (
    Adapter,
    AdapterFault,
    Capabilities,
    PdcMachine,
    PlayedExchange,
    ProcessAdapter,
    SharpNodeEngine,
    SharpNodeMachine,
    Spoilt,
    WorkRefused,
    WorldFailure,
    captures,
    exchanges,
    frames,
    headers,
    messages,
    packets,
    scenarios,
)


@given(packets(mode="rod", opcode="WRITE", mtu=4096))
def check_decoder(packet: Packet) -> None:
    assert decode(encode(packet)) == packet


@given(frames(crc=True, spoilt=True))
def check_receiver(spoilt: Spoilt[bytes]) -> None:
    frame, rule, what = spoilt
    assert decode(frame) is not None, f"{rule}: {what}"


def acks() -> SearchStrategy[Layer]:
    """Return a strategy of one's own, made from one of these."""
    return headers("pds.ack").filter(lambda header: header.values["req"] == 0)


def nacks(spoilt: Spoilt[Layer]) -> int:
    """Return the code of a NACK with one fault."""
    code: int = spoilt.value.values["nack_code"]
    return code


@given(exchanges(mode="rud", faults=True, operations=2), messages(opcode="SEND", mtu=2048))
def check_endpoint(exchange: PlayedExchange, message: list[bytes]) -> None:
    first = exchange.frames[0]
    assert (first.time_ns, first.sender, first.data) == (0, "initiator", exchange.requests[0])
    assert len(message) >= 1


@given(captures(format="pcap", exchanges=1, spoilt=True), scenarios(spoilt=True))
def check_files(capture: Spoilt[bytes], scenario: Spoilt[str]) -> None:
    assert capture.rule
    assert scenario.value.startswith("[run]")


class MyStack:
    """An adapter of one's own, without a base class."""

    capabilities = Capabilities(observable=False, work=("message",), modes=("rud",), losses=3)

    def reset(self, config: Mapping[str, Any]) -> None:
        self.waiting: list[bytes] = []

    def submit(self, work: Mapping[str, Any]) -> None:
        raise WorkRefused(f"{work['op']} is not known")

    def deliver(self, frame: bytes) -> None:
        self.waiting.append(frame)

    def poll(self) -> list[bytes]:
        return []

    def advance(self, picoseconds: int) -> None: ...

    def observe(self) -> None: ...


adapters: list[Callable[[], Adapter]] = [MyStack, SharpNodeEngine, lambda: ProcessAdapter("./my_stack --adapter")]
machine: type[PdcMachine] = PdcMachine.of(MyStack)
nodes: type[SharpNodeMachine] = SharpNodeMachine.of(SharpNodeEngine)
TestMyStack = machine.TestCase


def how_it_fails() -> tuple[str, int]:
    """Return the rule or the kind of fault, and the number of frames up to it."""
    try:
        machine.replay([("begin", {"seed": 0, "knobs": {}})])
    except WorldFailure as failure:
        return failure.name, len(failure.frames)
    except AdapterFault as fault:
        return fault.kind, len(fault.frames)
    return "", 0
