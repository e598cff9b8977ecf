# SPDX-License-Identifier: GPL-2.0-only
"""This module has implementations of PDS with faults, and adapters that break their contract."""

from collections.abc import Mapping
from typing import Any

from uetproto import decode, encode
from uetproto.testing import Capabilities, PdcEngine, WorkRefused
from uetproto.wire.headers.uet_pds import CtlType


class BlackBox(PdcEngine):
    """Our PDS, of which nothing can be observed."""

    capabilities = Capabilities(observable=False)

    def observe(self) -> Any:
        super().observe()


class Deaf(PdcEngine):
    """A PDS that does not hear duplicates: it drops what it has received before, and does not answer again."""

    def reset(self, config: Mapping[str, Any]) -> None:
        super().reset(config)
        self.heard: set[bytes] = set()

    def deliver(self, frame: bytes) -> None:
        kind, psn = frame[42] >> 3, frame[46:50]
        if kind in (2, 3) and psn in self.heard:
            return
        self.heard.add(psn)
        super().deliver(frame)


class Twice(PdcEngine):
    """A PDS that delivers each packet twice to SES, but tells it once on the wire."""

    def observe(self) -> dict[str, Any]:
        seen = super().observe()
        return {**seen, "events": [*seen["events"], *(e for e in seen["events"] if e["event"] == "delivery")]}


class NoRetransmission(PdcEngine):
    """A PDS whose retransmissions never leave."""

    def poll(self) -> list[bytes]:
        return [frame for frame in super().poll() if not frame[43] & 0x10 or frame[42] >> 3 not in (2, 3)]


class WrongCack(PdcEngine):
    """A PDS whose ACKs tell a CACK_PSN that is one too high."""

    def poll(self) -> list[bytes]:
        return [_wrong(frame) for frame in super().poll()]


def _wrong(frame: bytes) -> bytes:
    packet = decode(frame)
    for layer in packet.layers:
        if layer.form.startswith("pds.ack"):
            layer.values["cack_psn"] = layer.values["cack_psn"] + 1 & 0xFFFFFFFF
    return encode(packet, fill=True)


class Raising(PdcEngine):
    def deliver(self, frame: bytes) -> None:
        raise KeyError("no such PDC")


class Garbage(PdcEngine):
    def poll(self) -> Any:
        return ["00"]


class Foreign(PdcEngine):
    """A PDS whose frames are no UET."""

    def poll(self) -> list[bytes]:
        return [frame[:12] + b"\x88\xb5" + frame[14:] for frame in super().poll()]


class Unwilling(PdcEngine):
    """A PDS that does nothing that it says it does."""

    def submit(self, work: Any) -> None:
        raise WorkRefused("not now")


class NeverCloses(PdcEngine):
    """A PDS whose CLOSE_CMD never leaves."""

    def poll(self) -> list[bytes]:
        return [frame for frame in super().poll() if not _closes(frame)]


def _closes(frame: bytes) -> bool:
    return any(layer.values.get("ctl_type") == CtlType.CLOSE_CMD for layer in decode(frame).layers)


class Impatient(PdcEngine):
    """A PDS that does not wait when the peer has no resources, and asks for a CLEAR all the time."""

    def make(self, config: Mapping[str, Any]) -> Any:
        knobs = {**config["knobs"], "nack_retx_time": 1, "pds_clear_time": 1}
        return super().make({**config, "knobs": knobs})


class NoClear(PdcEngine):
    """A PDS that ignores the CLEAR_PSN of requests."""

    def deliver(self, frame: bytes) -> None:
        packet = decode(frame)
        changed = False
        for layer in packet.layers:
            if "clear_psn_offset" in layer.values and layer.values["clear_psn_offset"] == -1:
                layer.values["clear_psn_offset"] = -2
                changed = True
        super().deliver(encode(packet, fill=True) if changed else frame)
