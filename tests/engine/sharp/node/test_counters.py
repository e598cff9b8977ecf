# SPDX-License-Identifier: GPL-2.0-only
"""Counters of aggregation nodes, port by port, as management reads them (sharp.md §1.8, §2.9)."""

from tests.support.sharp.fabric import HOSTS as ADDRESSES
from tests.support.sharp.fabric import A, Wire
from tests.support.sharp.node_operations import STREAM, aggregate, ready, request, streaming
from tests.support.sharp.nodes import GROUP, HOSTS, JOB, LEAF_A, LEAF_B, LLT, SAT, SPINE, Net
from uetproto.engine.sharp.config import SharpConfig
from uetproto.engine.sharp.management import ALL_PORTS, OTHER_PORT, PARENT_PORT
from uetproto.engine.sharp.manager.agent import SharpAgent
from uetproto.engine.sharp.manager.grants import JobGrant
from uetproto.engine.sharp.manager.mads import Mad, read
from uetproto.engine.sharp.messages import SharpFault, SharpMessage
from uetproto.engine.sharp.node.aggregation_node import SharpNode
from uetproto.wire.headers.sharp import COUNTERS, AmAttribute, AmMethod, Flag, MadStatus, SharpOpcode, Status

PORTS = Wire().ports[A]


def asked(node: SharpNode, port: int, select: int = 0) -> Mad:
    mad = Mad(method=AmMethod.GET, attribute=AmAttribute.PERFORMANCE_COUNTERS, values={"port": port, "select": select})
    answer = read(SharpAgent(node, PORTS).handle(mad.pack(), 0))
    assert answer is not None
    return answer


def counts(net: Net, name: str, port: int) -> dict[str, int]:
    """Those that are not 0."""
    values = asked(net.nodes[name], port).values
    return {counter: values[counter] for counter in COUNTERS if values[counter]}


def more(net: Net, name: str, port: int, before: dict[str, int]) -> dict[str, int]:
    now = counts(net, name, port)
    return {counter: count - before.get(counter, 0) for counter, count in now.items() if count != before.get(counter)}


def traffic(received: int, sent: int, size: int) -> dict[str, int]:
    found = {
        "packets_sent": sent, "rcds_sent_packets": sent, "rcds_sent_bytes": sent * size,
        "hba_received_packets": received, "hba_received_bytes": received * size,
    }  # fmt: skip
    return {name: count for name, count in found.items() if count}


def test_each_port_has_what_crosses_it() -> None:
    """A vector of two: 40 bytes; the spine answers two children."""
    net = ready()
    places = [(LEAF_A, 0), (LEAF_A, 1), (LEAF_A, PARENT_PORT), (LEAF_A, ALL_PORTS), (SPINE, 0), (SPINE, ALL_PORTS)]
    before = {place: counts(net, *place) for place in places}
    aggregate(net)
    grown = {place: more(net, *place, before[place]) for place in places}
    one = traffic(1, 1, 40)
    assert grown == dict(zip(places, [one, one, one, traffic(3, 3, 40), one, traffic(2, 2, 40)], strict=True))
    assert counts(net, SPINE, PARENT_PORT) == {}


def test_a_port_is_the_same_on_all_trees() -> None:
    net = streaming()
    before = counts(net, LEAF_B, 1)
    for host in HOSTS:
        net.send(host, request(host, tree=SAT, flags=STREAM))
    net.run()
    aggregate(net)
    assert more(net, LEAF_B, 1, before) == traffic(2, 2, 40)


def test_multicast_is_none_of_them() -> None:
    net = ready()
    before = counts(net, SPINE, ALL_PORTS)
    aggregate(net, flags=int(Flag.FIRST | Flag.LAST | Flag.MCAST))
    assert counts(net, SPINE, OTHER_PORT) == traffic(0, 1, 40)
    found = more(net, SPINE, ALL_PORTS, before)
    assert (found["packets_sent"], found["rcds_sent_bytes"]) == (3, 40 + 2 * 32)


def test_a_silent_parent() -> None:
    net = ready()
    net.keep = lambda source, target, data: target != SPINE
    aggregate(net)
    net.wait(1001)
    found = counts(net, LEAF_A, PARENT_PORT)
    assert (found["timeout_events"], found["retry_packets_sent"]) == (2, 2)
    assert "timeout_events" not in counts(net, LEAF_A, 0)


def test_a_silent_child() -> None:
    net = ready()
    aggregate(net, hosts=HOSTS[1:])
    net.wait(net.config.t_ost // 10**9 + 1)
    assert counts(net, LEAF_A, 0)["timeout_events"] == 1
    assert "timeout_events" not in counts(net, LEAF_A, 1)


def test_heartbeats_without_an_answer() -> None:
    net = ready(SharpConfig(lab_radix=2))
    for _ in range(net.config.heartbeats_missed + 1):
        net.send("H1", SharpMessage(SharpOpcode.HEARTBEAT_RESP, LLT, 0, 0, 0, body=bytes(8)))
        net.wait(net.config.heartbeat // 10**9)
    assert counts(net, LEAF_A, 0)["timeout_events"] == 1
    assert "timeout_events" not in counts(net, LEAF_A, 1)


def test_what_is_refused_here_and_above() -> None:
    net = ready()
    net.send("H1", request("H1", 9))
    net.run()
    assert counts(net, LEAF_A, 1)["rnr_events"] == 1
    aggregate(net, hosts=HOSTS[:2])
    for status in (Status.OST_EXHAUSTED, Status.SEQ_AHEAD, Status.SEQ_STALE):
        nack = SharpMessage(SharpOpcode.NACK, LLT, JOB, GROUP, 0, status=status, body=SharpFault(status).pack())
        net.nodes[LEAF_A].message(100 + LLT, nack.pack(), net.now)
    found = counts(net, LEAF_A, PARENT_PORT)
    assert (found["rnr_naks"], found["out_of_sequence_naks"]) == (1, 2)


def test_what_nobody_wants_is_discarded_at_its_port() -> None:
    net = ready()
    result = SharpMessage(SharpOpcode.AGG_RESULT, LLT, JOB, GROUP, 0)
    net.send("H1", result)
    net.run()
    net.nodes[LEAF_A].message(77, result.pack(), net.now)
    found = [counts(net, LEAF_A, port).get("sharp_discards", 0) for port in (0, 1, OTHER_PORT, ALL_PORTS)]
    assert found == [0, 1, 1, 2]


def test_only_what_is_selected() -> None:
    net = ready()
    values = asked(net.nodes[LEAF_A], ALL_PORTS, 1 << COUNTERS.index("packets_sent")).values
    assert [name for name in COUNTERS if values[name]] == ["packets_sent"]


def test_a_port_that_no_node_has() -> None:
    net = ready()
    assert asked(net.nodes[LEAF_A], net.config.children - 1).status == MadStatus.OK
    assert asked(net.nodes[LEAF_A], net.config.children).status == MadStatus.BAD_FIELD


def test_ports_outlive_jobs() -> None:
    """The next job has other connections at the same ports."""
    wire = Wire()
    wire.manager.start()
    seen = []
    for job_id in (1, 2):
        grant = wire.manager.begin_job([ADDRESSES], job_id=job_id)
        assert isinstance(grant, JobGrant)
        wire.join(grant)
        seen.append(asked(wire.nodes[A], 0).values["hba_received_packets"])
        wire.manager.end_job(job_id)
    assert seen == [1, 2]
