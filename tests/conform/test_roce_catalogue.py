# SPDX-License-Identifier: GPL-2.0-only
"""Tests of RoCE that are wrong, wishes for queue pairs that are not legal, and what a peer answers to them."""

import json
import random
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.conform_roce import RoceLink, RocePeer
from uetproto.cli.live.tested_pairs import opened_of, work_of
from uetproto.conform.catalogue import load
from uetproto.conform.player import Patience
from uetproto.conform.roce.pairs import PairWish, message_of
from uetproto.conform.roce.play import play
from uetproto.errors import LocalError

TEST = """[[test]]
id = "MINE-1"
section = "roce.md §8"
purpose = "A SEND is taken."
pairs = ["rc"]
steps = [
    { send = "send_only", psn = "start", a = 1, data = 4, as = "d" },
    { expect = "ack", psn = "start" },
    { received = 1, data = "@d" },
]
"""


def run(folder: Path, text: str) -> str:
    path = folder / "mine.toml"
    path.write_text(text, encoding="utf-8")
    peer = RocePeer()
    return play(load([path])[0], RoceLink(peer), peer.facts, "1", Patience()).verdict.value


@pytest.mark.parametrize(("right", "wrong", "told"), [
    ('["rc"]', '["rx"]', "pairs"),
    ('["rc"]', "[]", "pairs"),
    ('["rc"]', '"rc"', "pairs"),
    ('["rc"]', '["rc", "rc", "rc", "rc", "rc"]', "pairs"),
    ('["rc"]', '[{ kind = "rc", receives = 99 }]', "receives 99"),
    ('["rc"]', '[{ kind = "rc", recieves = 1 }]', "recieves"),
    ('["rc"]', "[{ receives = 1 }]", "without kind"),
    ('["rc"]', '["rc"]\nneeds = ["memory"]', "memory"),
    ("a = 1", "a = 1, on = 2", "on 2"),
    ("a = 1", "a = 1, pad = 9", "pad 9"),
    ("a = 1", 'a = 1, icrc = "bad"', "icrc"),
    ("a = 1", 'a = 1, transport = "xx"', "transport"),
    ("a = 1", "a = 1, dmalen = 4", "dmalen: is no field"),
    ("a = 1", "a = 2", "bth.a"),
    ("data = 4", "data = 99999", "data"),
    ("data = 4", 'data = "xyz"', "no variable 'xyz'"),
    ("data = 4", 'data = "@none"', "none"),
    ('psn = "start", a', "psn = 0x1000000, a", "psn"),
    ('send = "send_only"', 'send = "send_olny"', "no packet 'send_olny', did you mean|no packet 'send_olny'"),
    ('expect = "ack"', 'expect = "akc"', "akc"),
    ("received = 1", "received = -1", "received -1"),
    ("received = 1", 'received = 1, lenght = 4', "lenght"),
    ("received = 1", 'received = 1, length = "x y"', "length"),
    ('received = 1, data = "@d"', 'post = "sned"', "sned"),
    ('received = 1, data = "@d"', 'post = "rdma_read", imm = 4', "imm"),
    ('received = 1, data = "@d"', 'completed = "all"', "completed 'all'"),
    ('received = 1, data = "@d"', 'completed = 0, state = 1', "state"),
])  # fmt: skip
def test_a_wrong_test_is_told(tmp_path: Path, right: str, wrong: str, told: str) -> None:
    assert run(tmp_path, TEST) == "pass"
    assert right in TEST
    with pytest.raises(LocalError, match=rf"mine.toml:\d+: .*({told})"):
        run(tmp_path, TEST.replace(right, wrong, 1))


def test_pairs_belong_to_tests_of_roce(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="on 1"):
        run(tmp_path, TEST.replace('pairs = ["rc"]\n', "").replace("a = 1", "a = 1, on = 1"))
    with pytest.raises(LocalError, match="one of send"):
        run(tmp_path, TEST.replace('pairs = ["rc"]\n', ""))


GOOD = {"kind": "rc", "qp_num": 77, "psn": 1}


@pytest.mark.parametrize("pairs", [
    None, [], 7, [7], [{}], [{"kind": "rd"}], [GOOD] * 257, [{**GOOD, "qp_num": 1}], [{**GOOD, "psn": -1}],
    [{**GOOD, "receives": 32, "receive_size": 1 << 20}] * 9, [{**GOOD, "path_mtu": 300}],
    [{**GOOD, "receives": 1 << 40}], [{**GOOD, "receive_size": 1 << 40}], [{**GOOD, "access": "all"}],
    [GOOD, {"kind": "rc"}],
])  # fmt: skip
def test_wishes_that_are_not_legal_are_refused_and_leave_nothing(pairs: Any) -> None:
    peer = RocePeer()
    before = len(peer.node.hca.regions.by_rkey)
    with pytest.raises(LocalError):
        peer.tested.open({"pairs": pairs})
    assert (len(peer.node.hca.qps), len(peer.node.hca.regions.by_rkey)) == (0, before)
    with pytest.raises(LocalError):
        peer.tested.messages({"qp_num": 17})


@pytest.mark.parametrize("regions", [7, [0], ["4"], [1] * 257, [1 << 28, 1]])
def test_memory_that_is_not_legal_is_refused(regions: Any) -> None:
    peer = RocePeer()
    with pytest.raises(LocalError):
        peer.tested.open({"pairs": [GOOD], "regions": regions})
    assert (len(peer.node.hca.qps), len(peer.node.hca.regions.by_rkey)) == (0, 0)
    made = peer.tested.open({"pairs": [GOOD], "regions": [5, 4096]})["regions"]
    assert [one["length"] for one in made] == [5, 4096]


@pytest.mark.parametrize("work", [
    {}, {"opcode": "sned"}, {"opcode": "send", "data": "xy"}, {"opcode": "send", "data": 7},
    {"opcode": "rdma_read", "length": 1 << 40}, {"opcode": "rdma_read", "rkey": -1},
    {"opcode": "send_with_imm", "imm_data": 1 << 40}, {"opcode": ["send"]},
])  # fmt: skip
def test_work_that_is_not_legal_is_refused(work: dict[str, Any]) -> None:
    peer = RocePeer()
    [pair] = peer.tested.open({"pairs": [GOOD]})["pairs"]
    with pytest.raises(LocalError):
        peer.tested.post({"qp_num": pair["qp_num"], **work})
    with pytest.raises(LocalError):
        peer.tested.post({"qp_num": 2, "opcode": "send"})
    for _ in range(64):
        peer.tested.post({"qp_num": pair["qp_num"], "opcode": "rdma_write", "data": "00ff"})
    with pytest.raises(LocalError, match="64 times"):
        peer.tested.post({"qp_num": pair["qp_num"], "opcode": "rdma_write"})
    peer.tested.close()
    assert (peer.node.hca.qps, peer.node.hca.regions.by_rkey) == ({}, {})


def test_what_a_test_had_is_free_after_it() -> None:
    peer = RocePeer()
    for _ in range(20):
        peer.tested.open({"pairs": [GOOD] * 4})
        assert len(peer.node.hca.qps) == 4
    peer.tested.close()
    assert (peer.node.hca.qps, peer.node.hca.regions.by_rkey) == ({}, {})


def test_answers_of_a_peer_that_make_no_sense_are_local_errors() -> None:
    rng = random.Random(3)
    wishes = [PairWish("rc", 77, 1)]
    peer = RocePeer()
    right = peer.tested.open({"pairs": [GOOD]})
    assert opened_of(wishes, right).pairs[0].theirs == right["pairs"][0]["qp_num"]
    values: list[Any] = [None, 7, -1, "x", [], {}, [[]], [None] * 4, 1 << 70, True]
    work = {"status": "SUCCESS", "data": "00ff"}
    message = {"data": "00ff", "length": 2, "immdt": None, "se": 0, "srcqp": 5}
    for _ in range(400):
        for told, read in ((right, lambda told: opened_of(wishes, told)), (message, message_of), (work, work_of)):
            broken = json.loads(json.dumps(told))
            at: Any = broken
            for _ in range(rng.randrange(3)):
                inner = [
                    one for one in (at.values() if isinstance(at, dict) else at) if isinstance(one, dict | list) and one
                ]
                at = rng.choice(inner) if inner else at
            key: Any = rng.choice(list(at)) if isinstance(at, dict) else rng.randrange(len(at))
            at[key] = rng.choice(values)
            with suppress(LocalError):
                read(broken)
