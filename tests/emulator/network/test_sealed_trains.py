# SPDX-License-Identifier: GPL-2.0-only
"""Trains of sealed packets: keys, epochs and counters change between two of their packets, and peers do not agree."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.support.trains.play import difference, play
from tests.support.trains.programs import Tables
from uetproto.emulator.scenario.settings import load
from uetproto.engine.contract import Datagram
from uetproto.engine.train import Train
from uetproto.framing.tss import Secured
from uetproto.framing.tss_trains import OpenedRun
from uetproto.framing.uet import Encapsulation
from uetproto.wire.capture.pcap import open_capture

LENGTH = 200_000
"""Bytes of a WRITE. The PDC is established after some 40 packets of 1024 bytes."""
ONE, TWO = ({"an": an, "key": f"{an + 7:02x}" * 32} for an in (0, 1))
OTHER = {"an": 1, "key": "5a" * 32}
DISAGREE = {"keys": [ONE, OTHER]}
LATE = {"rx_max_epoch_lifetime": 0}
CASES: dict[str, dict[str, Any]] = {
    "one key": {},
    "SSIs, over IPv6": {"addresses": ("fd00::1", "fd00::2"), "ssi": True},
    "client and server": {"mode": "client-server"},
    "cluster, with a rekey": {"mode": "cluster", "rekey_mask": 0xFFFFFFF8, "rekey_shift": 3},
    "PDS header in clear": {"crypto_offset": 28},
    "rotation": {"rotate_at": 90},
    "rotation without a guard time": {"rotate_at": 90, "rotate_guard": "0 ps"},
    "rotation at an instant": {"rotate_at": "13 us", "rotate_guard": "2 us"},
    "rotation to a key that the target does not have": {"rotate_at": 90, "target": DISAGREE},
    "the target drops all after three failures": {"rotate_at": 90, "target": DISAGREE | {"auth_fail_threshold": 3}},
    "the target drops all because of another sender": {
        "more": [{"do": "write", "node": "c", "peer": "b", "length": 20_000, "key": 7, "at": "9 us"}],
        "target": {"auth_fail_threshold": 3}, "c": {"key": "5a" * 32},
    },
    "next epoch": {"epoch_at": 90},
    "next epoch at an instant, for which the target does not wait": {"epoch_at": "13 us", "target": LATE},
    "the target's epoch moves first, as it sends more": {
        "epoch_at": 90, "target": LATE,
        "more": [{"do": "write", "node": "b", "peer": "a", "length": LENGTH, "key": 7, "at": "0 ps"}],
    },
    "an ACK moves the target's epoch": {
        "epoch_at": 190, "target": LATE, "acks": 1,
        "more": [{"do": "write", "node": "b", "peer": "a", "length": 80_000, "key": 7, "at": "0 ps"}],
    },
    "no counter is left": {"initiator": {"invoke_fatal_threshold": 120}},
    "no counter is left for ACKs": {"target": {"invoke_fatal_threshold": 70}, "acks": 1},
}  # fmt: skip


def tables_of(
    addresses: tuple[str, str] = ("10.0.0.1", "10.0.0.2"), ssi: bool = False, more: Any = (), target: Any = None,
    initiator: Any = None, c: Any = None, acks: int = 16384, **security: Any,
) -> Tables:  # fmt: skip
    """Return a run in which a WRITE goes from node a to node b, with an ACK for so many bytes. `target`, `initiator`
    and `c` are what nodes have in place of `security`."""
    nodes: Tables = {"a": {"address": addresses[0]}, "b": {"address": addresses[1]}}
    if c is not None:
        nodes["c"] = {"address": "10.0.0.3"}
    for number, (node, own) in enumerate(zip(nodes.values(), (initiator, target, c), strict=False)):
        if own is not None:
            node["security"] = own
        if ssi:
            node["ssi"] = number + 1
    rows = [{"do": "region", "node": name, "length": LENGTH, "key": 7} for name in ("a", "b")]
    return deepcopy({
        "run": {"mode": "rud", "initiator": "a", "target": "b", "time_limit": "3 ms"},
        "nodes": nodes, "ses": {"payload_mtu": 1024}, "pds": {"ack_gen_trigger": acks}, "fabric": {"rate": "100 Gb/s"},
        "security": {"sdi": 1, "keys": [ONE, TWO], **security},
        "operation": [
            *rows, {"do": "write", "node": "a", "peer": "b", "length": LENGTH, "key": 7, "at": "0 ps"}, *more,
        ],
    })  # fmt: skip


SETTINGS = {
    "one key": (),
    "a derived key for two packets": ("security.mode=cluster", "security.rekey_mask=6", "security.rekey_shift=1"),
    "rotation, and the old key is gone": ("security.rotate_at=5", "security.rotate_guard=0ps"),
    "next epoch": ("security.epoch_at=7",),
    "no counter after ten packets": ("security.invoke_fatal_threshold=10",),
    "part of the packet in clear": ("security.crypto_offset=40",),
}  # fmt: skip


@pytest.mark.parametrize("case", SETTINGS)
def test_the_frames_of_a_train_are_those_of_its_packets(case: str) -> None:
    """Frames, keys, epoch and counters are the same."""
    scenario = load("gradient-sealed-rotation", ("security.rotate_at=1000", *SETTINGS[case]))
    assert scenario.security is not None
    heads, payloads = [bytes([0x11, at]) + bytes(42) for at in range(16)], [bytes([at]) * 64 for at in range(16)]
    entropies = [at % 3 for at in range(16)]
    seen = []
    for as_train in (False, True):
        secured = Secured(scenario.security, lambda: 0)
        a, b = (secured.framer(node, Encapsulation()) for node in scenario.nodes.values())
        src, dst = (node.address for node in scenario.nodes.values())
        if as_train:
            frames = a.frames(Train(src, dst, heads, list(payloads), entropies, 4))
        else:
            parts = zip(heads, payloads, entropies, strict=True)
            frames = [a.frame(Datagram(src, dst, head, body, entropy=entropy)) for head, body, entropy in parts]
        domain = a.domain
        seen.append((
            [frame for frame in frames if frame], domain.tx_counter, domain.tx_an, domain.tx_epoch, domain.counters,
            domain.has_key(0), domain.has_key(1), repr(secured.ledger), [b.packet(frame) for frame in frames if frame],
        ))  # fmt: skip
    assert seen[0] == seen[1]
    assert len(seen[0][0]) == (10 if "no counter" in case else 16)


@pytest.mark.parametrize("case", CASES)
def test_a_sealed_run_with_trains_is_the_run_without(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = tables_of(**CASES[case])
    unopened = 0

    def counting(take: Any) -> Any:
        def taken(run: OpenedRun, index: int, packets: int, now: int) -> Any:
            nonlocal unopened
            unopened += packets
            return take(run, index, packets, now)

        return taken

    for name in ("settle", "due"):
        monkeypatch.setattr(OpenedRun, name, counting(getattr(OpenedRun, name)))
    single = play(tables, "off", tmp_path)
    assert "error" not in single, single["error"]
    assert difference(single, play(tables, "auto", tmp_path)) is None
    assert unopened > 20
    with open_capture(tmp_path / "auto.pcapng") as capture:
        types = {record.data[62 if "addresses" in CASES[case] else 42] >> 3 for record in capture}
    assert types == {1}  # that of the security header
