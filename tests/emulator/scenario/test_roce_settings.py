# SPDX-License-Identifier: GPL-2.0-only
"""`[roce]`, `[qp.NAME]` and rows over RoCE: what is read, and how every fault is told."""

from pathlib import Path
from typing import Any

import pytest

from uetproto import LocalError
from uetproto.emulator.scenario.settings import Scenario, load
from uetproto.engine.roce.contract import Access, QpType

BASE = """\
[run]
transport = "rc"

[nodes.a]
address = "10.0.0.1"

[nodes.b]
address = "10.0.0.2"

[[operation]]
do = "send"
length = 8
"""


def read(tmp_path: Path, text: str, settings: tuple[str, ...] = ()) -> Scenario:
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return load(str(path), settings)


def test_two_queue_pairs_without_a_word(tmp_path: Path) -> None:
    qps = read(tmp_path, BASE).qps
    assert [(qp.name, qp.node, qp.peer, qp.number) for qp in qps.values()] == [
        ("a", "a", "b", 0x11), ("b", "b", "a", 0x12),
    ]  # fmt: skip


def test_queue_pairs_by_name(tmp_path: Path) -> None:
    text = BASE + '\n[qp.x]\nnode = "a"\naccess = ["remote_read"]\ntimeout = 3\nsq_psn = 7\n[qp.b]\nnumber = 99\n'
    qps = read(tmp_path, text).qps
    assert (qps["x"].node, qps["x"].peer, qps["x"].sq_psn) == ("a", "b", 7)
    assert qps["x"].attributes == {"access_flags": Access.REMOTE_READ, "timeout": 3}
    assert (qps["b"].node, qps["b"].peer, qps["b"].number) == ("b", "x", 99)


def test_parameters(tmp_path: Path) -> None:
    text = BASE + '[roce]\npath_mtu = 1024\nack_delay = "3 us"\ncredits = "off"\n[nodes.b.roce]\npath_mtu = 256\n'
    scenario = read(tmp_path, text, ("crc=off",))
    a, b = (node.roce for node in scenario.nodes.values())
    assert (a.path_mtu, b.path_mtu, a.ack_delay, a.credits, a.icrc) == (1024, 256, 3_000_000, False, False)
    assert scenario.run.transport is QpType.RC


def test_marks_come_with_dcqcn(tmp_path: Path) -> None:
    """Without marks it would do nothing: `red = false` says so on purpose."""
    assert read(tmp_path, BASE).fabric.red is None
    assert read(tmp_path, BASE, ("roce.congestion=dcqcn",)).fabric.red is not None
    assert read(tmp_path, BASE, ("roce.congestion=dcqcn", "fabric.red=false")).fabric.red is None
    pfc = read(tmp_path, BASE, ("fabric.pfc_xoff=40000", "fabric.pfc_xon=20000")).fabric.pfc
    assert pfc is not None
    assert (pfc.xoff, pfc.xon) == (40000, 20000)


REFUSALS: list[tuple[tuple[str, str] | str, str]] = [
    (('"rc"', '"rd"'), "mine.toml:2: run.transport: 'rd' is not legal; legal: uet, rc, uc, ud"),
    (('"rc"', '"uet"\n[roce]'), "mine.toml:3: roce: does not go with this transport; run.transport may be rc, uc"),
    ("[pds]", "pds: does not go with this transport"),
    ("[preset.a]", "preset: does not go with this transport"),
    (('"rc"', '"rc"\njob_id = 1'), "mine.toml:3: run.job_id: does not go with transport rc"),
    (('"rc"', '"rc"\nkey = 0x100000000'), "mine.toml:3: run.key: is no r_key; legal: 32 bits"),
    ("[faults]\ntrim = 0.1", "faults.trim: does not go with RoCEv2, which has no trimming; legal: drop"),
    ("[fabric]\ntrimming = true", "fabric.trimming: does not go with RoCEv2"),
    ('[fabric]\nencapsulation = "native"', "fabric.encapsulation: does not go with RoCEv2"),
    (
        "[fabric]\nmtu = 1500",
        "a payload of 4096 bytes makes an IP packet of 4160, the link's mtu is 1500; legal",
    ),
    ("[fabric]\npfc = false\npfc_xoff = 9", "fabric.pfc_xoff: does not go with pfc = false"),
    ("[fabric]\npfc_xoff = 9", "fabric: pfc: xon 32768, xoff 9; legal: 0 < xon ≤ xoff, bytes"),
    ('[fabric]\ntopology = "pair"\npfc = true', "fabric.pfc: is what a switch does; legal: a topology with switches"),
    (
        "[fabric]\nqueue_capacity = 9\npfc = true",
        "fabric.queue_capacity: 9 bytes leave no headroom for pfc; legal: ",
    ),
    ("[roce]\npath_mtu = 4095", "roce.path_mtu: 4095 is not legal; legal: 256, 512, 1024, 2048, 4096"),
    ("[roce]\nspeed = 1", "roce.speed: unknown key; legal: path_mtu, timeout"),
    ('[qp.a]\nnode = "z"', "qp.a.node: no such node: 'z'; legal: a, b"),
    ("[qp.one]", "qp.one: no such node: 'one'; legal: a, b"),
    ('[qp.a]\npeer = "z"\n[qp.b]', "qp.a.peer: no such queue pair: 'z'; legal: b"),
    ('[qp.a]\n[qp.b]\n[qp.c]\nnode = "a"\npeer = "b"', "qp.a: peer is missing; legal: another of a, b, c"),
    ('[qp.a]\npeer = "b"\n[qp.b]\npeer = "c"\n[qp.c]\nnode = "a"\npeer = "b"', "qp.a: its peer b has another one, c"),
    ("[qp.a]\nnumber = 1\n[qp.b]", "qp.a.number: 1 is not legal; legal: a whole number, 2 … 0xfffffe"),
    ("[qp.a]\ntimeout = 32\n[qp.b]", "qp.a.timeout: 32 is not legal; legal: a whole number, 0 … 31"),
    ('[qp.a]\naccess = ["all"]\n[qp.b]', "qp.a.access: ['all'] is not legal; legal: some of local_write, remote_write"),
    ('[[operation]]\ndo = "jump"', "operation.1.do: 'jump'; legal: send, write, read, … (13 in all)"),
    ('[[operation]]\ndo = "write"\nlength = 8', "operation.1: write needs key; legal: a whole number, 0 … 0xffffffff"),
    ('[[operation]]\ndo = "send"\nlength = 8\nkey = 1', "operation.1.key: does not go with send; legal: do, node, at"),
    ('[[operation]]\ndo = "send"\nlength = 8\nto = "b"', "operation.1.to: goes with ud only"),
    (
        '[[operation]]\ndo = "send"\nlength = 8\nqp = "b"\nnode = "a"',
        "1.qp: 'b' is no queue pair of a; legal: a",
    ),
    (
        '[[operation]]\ndo = "send"\nlength = 8\nexpect = "FINE"',
        "1.expect: 'FINE' is not legal; legal: SUCCESS",
    ),
    ('[[operation]]\ndo = "send"\nlength = 8\nimm = 1\ninvalidate = 2', "operation.1.imm: does not go with invalidate"),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS)
def test_refusals(tmp_path: Path, change: Any, message: str) -> None:
    text = BASE.replace(*change) if isinstance(change, tuple) else f"{BASE}\n{change}\n"
    with pytest.raises(LocalError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/mine.toml:")


@pytest.mark.parametrize(
    ("transport", "row", "message"),
    [
        ("uc", 'do = "read"\nlength = 8\nkey = 1', "read is not there on uc; transports that have it: rc"),
        ("ud", 'do = "write"\nlength = 8\nkey = 1', "write is not there on ud; transports that have it: rc, uc"),
        ("uc", 'do = "fetch_add"\nkey = 1\nadd = 1', "fetch_add is not there on uc; transports that have it: rc"),
        ("uc", 'do = "send"\nlength = 8\ninvalidate = 1', "send with invalidate is not there on uc"),
        ("ud", 'do = "send"\nlength = 8\nto = "nobody"', "operation.1.to: 'nobody' is no queue pair; legal: a, b, or"),
    ],
)
def test_what_a_transport_does_not_have(tmp_path: Path, transport: str, row: str, message: str) -> None:
    """roce.md §6."""
    text = BASE.replace('"rc"', f'"{transport}"') + f"\n[[operation]]\n{row}\n"
    with pytest.raises(LocalError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
