# SPDX-License-Identifier: GPL-2.0-only
"""This module makes RoCE requests by hand, and returns the answers of a responder."""

from tests.support.roce.world import BASE, QP_B, A, B, World
from uetproto.engine.contract import Datagram
from uetproto.engine.roce.contract import (
    RocePacket,
)
from uetproto.engine.roce.packets import parse
from uetproto.engine.roce.segments import STEPS
from uetproto.wire.codec import codec_of
from uetproto.wire.headers.roce import ATOMIC_ETH, BTH, RETH

OPERATION_OF = {step: operation for operation, step in reversed(STEPS.items())}


def packet(
    operation: int, psn: int, headers: bytes = b"", payload: bytes = b"", *, a: int = 1, destqp: int = QP_B,
    src: int = A, **bth: int,
) -> RocePacket:  # fmt: skip
    """Return a request that is made by hand."""
    values = {"opcode": operation, "m": 1, "p_key": 0xFFFF, "destqp": destqp, "a": a, "psn": psn & 0xFFFFFF,
              "padcnt": -len(payload) & 3} | bth  # fmt: skip
    pad = bytes(values["padcnt"])
    return RocePacket(src, B, codec_of(BTH).encode(values) + headers + payload + pad)


def reth(length: int, va: int = BASE, r_key: int | None = None) -> bytes:
    return codec_of(RETH).encode({"va": va, "r_key": 0x1235 if r_key is None else r_key, "dmalen": length})


def atomic(va: int = BASE, swap: int = 0, compare: int = 0, r_key: int = 0x1235) -> bytes:
    return codec_of(ATOMIC_ETH).encode({"va": va, "r_key": r_key, "swapdt": swap, "cmpdt": compare})


def hand(w: World, sent: Datagram) -> list[tuple[int, int, int | None, int | None]]:
    """Return the answers of B to a packet: (operation, PSN, syndrome, MSN)."""
    w.b.hca.receive(sent, w.now)
    answers = [parse(p) for p in w.b.hca.poll(w.now)]
    w.collect()
    return [(p.operation, p.psn, p.values.get("syndrome"), p.values.get("msn")) for p in answers if p]
