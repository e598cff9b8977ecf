# SPDX-License-Identifier: GPL-2.0-only
"""Patterns of flows, and the matrix files of the UEC simulator."""

from pathlib import Path

import pytest

from tests.support.each import each
from uetproto.errors import LocalError
from uetproto.fabric.matrix import Flow, traffic_matrix


def test_patterns() -> None:
    assert [flow[1:3] for flow in traffic_matrix("incast", 4, 7).flows] == [(2, 0), (3, 0)]
    assert [flow[1:3] for flow in traffic_matrix("outcast", 4, 7).flows] == [(0, 2), (0, 3)]
    assert [flow[1:3] for flow in traffic_matrix("permutation", 4, 7).flows] == [(0, 2), (1, 3), (2, 0), (3, 1)]
    flows = traffic_matrix("all_to_all", 4, 7).flows
    assert sorted(flow[1:3] for flow in flows) == [(a, b) for a in range(4) for b in range(4) if a != b]
    assert [flow.number for flow in flows] == list(range(1, 13))


def test_a_file_of_the_simulator(tmp_path: Path) -> None:
    path = tmp_path / "two.cm"
    path.write_text(
        "# made by hand\nNodes 128\nConnections 2\n1->65 id 5 start 0 size 2000000\n\n3->4 start 9 size 1\n"
    )
    assert traffic_matrix(str(path), 16, 1) == ("two", 128, (
        Flow(5, 1, 65, 0, 2_000_000, "two"), Flow(2, 3, 4, 9, 1, "two"),
    ))  # fmt: skip


@each("text, words", [
    ("", "Nodes: this line is missing; legal: a line Nodes n"), ("Nodes 4\n", "flows: there are none"),
    ("0->1 size 1\n", ":1: Nodes: this line is missing before the first flow; legal: a line Nodes n"),
    ("Nodes 4 5\n", "'4 5' is not legal"), ("Nodes 4\nNodes 5\n", ":2: Nodes: there are two"),
    ("Nodes 4\n0->1 size 1 start\n", ":2: flow: 'start' has no value"),
    ("Nodes 4\n0->1 size 1 size 2\n", ":2: flow: 'size' is there twice"),
    ("Nodes 1\n", ":1: Nodes: '1' is not legal; legal: 2 … 8192"), ("Nodes x\n", "'x'"), ("Nodes\n", "Nodes: ''"),
    ("Nodes 4\n0->4 size 1\n", ":2: host: '4' is not legal; legal: 0 … 3"),
    ("Nodes 4\n2->2 size 1\n", ":2: flow: from host 2 to itself; legal: two different hosts"),
    ("Nodes 4\n0->1 size 0\n", ":2: size: '0'"), ("Nodes 4\n0->1\n", "without size"),
    ("Nodes 4\n0->1 size 1 start -5\n", "start: '-5'"),
    ("Nodes 4\n0->1 size 1 trigger 3\n", "'trigger' is not supported"),
    ("Nodes 4\nConnections 2\n0->1 size 1\n", ":2: Connections: 2, but the file has 1 flow; legal: 1, or"),
    ("Nodes 4\n0->1 id 7 size 1\n0->2 id 7 size 1\n", ":3: id: 7 is that of line 2, too"),
    ("Nodes 4\nwhat\n", ":2: line: 'what' is not known"), ("Nodes 4\n->1 size 1\n", "host: ''"),
    ("Nodes 99999999999999999999999999\n", "Nodes"),
])  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong.cm"
    path.write_text(text)
    with pytest.raises(LocalError) as found:
        traffic_matrix(str(path), 16, 1)
    assert str(path) in str(found.value)
    assert words in str(found.value)


@each("what, hosts, size, words", [
    ("permutatio", 16, 1, "did you mean permutation?"), ("incast", 1, 1, "hosts: 1"), ("incast", 9000, 1, "2 … 8192"),
    ("incast+incast", 16, 1, "has one twice"), ("incast+outcas", 16, 1, "did you mean outcast?"),
    ("incast", 16, 0, "flow-size: 0"), ("all_to_all", 8000, 1, "at most 1048576"),
])  # fmt: skip
def test_patterns_that_cannot_be(what: str, hosts: int, size: int, words: str) -> None:
    with pytest.raises(LocalError, match="legal") as found:
        traffic_matrix(what, hosts, size)
    assert words in str(found.value)
