# SPDX-License-Identifier: GPL-2.0-only
"""Opcode, mode and kind of a send: decisions that need no network (ses.md §13.4, §13.5)."""

import pytest

from uetproto.api import fi
from uetproto.api.fi.choices import mode_of, rma_mode, send_kind
from uetproto.engine.contract import Mode, SendKind

Cap, Order, EpType = fi.FepCap, fi.Order, fi.EpType
SAFE = 1 << 63
BIG, SMALL = 8192, 8191


def peer(caps: fi.FepCap | None) -> fi.Address:
    return fi.Address(fa=1, fep_cap=caps)


@pytest.mark.parametrize("bit", [order for order in Order if order], ids=lambda order: order.name)
def test_any_bit_of_msg_order_is_rod(bit: fi.Order) -> None:
    assert mode_of(EpType.RDM, bit) is Mode.ROD
    assert rma_mode(bit, peer(Cap.HPC), SAFE, has_data=False) is Mode.ROD


def test_modes() -> None:
    assert mode_of(EpType.RDM, Order.NONE) is Mode.RUD
    assert mode_of(EpType.DGRAM, Order.NONE) is Mode.UUD
    assert mode_of(EpType.DGRAM, Order.SAS) is Mode.UUD


@pytest.mark.parametrize(
    ("caps", "key", "has_data", "mode"),
    [
        (Cap.HPC, SAFE | 1, False, Mode.RUDI),
        (Cap.HPC | Cap.AI_FULL, SAFE, False, Mode.RUDI),
        (Cap.HPC, 1, False, Mode.RUD),
        (Cap.HPC, SAFE | 1, True, Mode.RUD),
        (Cap.AI_FULL, SAFE | 1, False, Mode.RUD),
        (None, SAFE | 1, False, Mode.RUD),
    ],
)
def test_rudi(caps: fi.FepCap | None, key: int, has_data: bool, mode: Mode) -> None:
    assert rma_mode(Order.NONE, peer(caps), key, has_data) is mode


P, R, D = SendKind.PLAIN, SendKind.RENDEZVOUS, SendKind.DEFERRABLE
FULL, HPC, BASE = Cap.AI_FULL, Cap.HPC, Cap.AI_BASE


@pytest.mark.parametrize(
    ("large_send", "mode", "caps", "length", "kind"),
    [
        ("plain", Mode.ROD, FULL | HPC, BIG, P),
        ("auto", Mode.ROD, FULL | HPC, BIG, R),
        ("auto", Mode.ROD, FULL | HPC, SMALL, P),
        ("auto", Mode.ROD, FULL, BIG, P),
        ("auto", Mode.RUD, FULL | HPC, BIG, D),
        ("auto", Mode.RUD, FULL | HPC, SMALL, P),
        ("auto", Mode.RUD, HPC, BIG, P),
        ("auto", Mode.RUD, None, BIG, P),
        ("auto", Mode.ROD, None, BIG, P),
        ("rendezvous", Mode.RUD, HPC, BIG, R),
        ("rendezvous", Mode.ROD, None, BIG, R),
        ("rendezvous", Mode.ROD, FULL, BIG, P),
        ("rendezvous", Mode.RUD, HPC, SMALL, P),
        ("deferrable", Mode.RUD, BASE, BIG, D),
        ("deferrable", Mode.ROD, FULL, BIG, P),
        ("deferrable", Mode.RUD, FULL, SMALL, P),
        ("rendezvous", Mode.UUD, HPC, BIG, P),
        ("deferrable", Mode.UUD, FULL, BIG, P),
    ],
)
def test_large_sends(large_send: str, mode: Mode, caps: fi.FepCap | None, length: int, kind: SendKind) -> None:
    assert send_kind(fi.SesConfig(large_send=large_send), mode, peer(caps), length) is kind


def test_each_kind_has_its_threshold() -> None:
    config = fi.SesConfig(large_send="auto", rendezvous_threshold=10, deferrable_threshold=20)
    assert [send_kind(config, Mode.ROD, peer(HPC), size) for size in (9, 10)] == [P, R]
    assert [send_kind(config, Mode.RUD, peer(FULL), size) for size in (19, 20)] == [P, D]
