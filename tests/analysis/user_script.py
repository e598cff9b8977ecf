# SPDX-License-Identifier: GPL-2.0-only
"""Programs of a tester of NICs and of the author of a stack, which `mypy --strict` accepts: they find what was sent
again and why, group packets by PDC, plot PSNs over time, export tables, compare captures, and sweep."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import assert_type

import uetproto

# The tester: a capture of a device, and what is wrong with it ---------------------------------------------------------


@dataclass(frozen=True)
class Again:
    """A packet that was sent again, and the packet that it repeats."""

    number: int
    repeats: int | None
    psn: int
    after_us: float | None


def sent_again(path: str) -> list[Again]:
    """Return the retransmissions of a capture."""
    capture = uetproto.open(path).analysed()
    times = {packet.number: packet.time_ns for packet in capture}
    found = []
    for packet in capture.filter("uetp.analysis.retransmission"):
        repeats = packet.get("uetp.retransmission_of")
        after = None if repeats is None else (packet.time_ns - times[repeats]) / 1000
        psn = packet["uetp.psn"]
        assert_type(psn, int)
        found.append(Again(packet.number, repeats, psn, after))
    return found


def causes(path: str) -> Counter[str]:
    """Return how often packets of each direction of a PDC were sent again, by cause."""
    found: Counter[str] = Counter()
    for flow in uetproto.open(path).pdcs:
        assert_type(flow.packets, int)
        found.update(flow.resent)
    return found


@dataclass
class Conversation:
    """What a PDC carried: requests by opcode, answers, and the PSNs of both directions."""

    requests: Counter[str] = field(default_factory=Counter)
    acks: int = 0
    nacks: int = 0
    psns: set[tuple[str, int]] = field(default_factory=set)


def by_pdc(path: str) -> dict[int, Conversation]:
    """Return the conversations of a capture by the number of their PDC."""
    found: defaultdict[int, Conversation] = defaultdict(Conversation)
    for packet in uetproto.open(path).analysed():
        number = packet.get("uetp.pdc")
        if number is None:
            continue
        pdc = found[number]
        if "pds.nack" in packet:
            assert_type(packet["pds.nack"]["nack_code"], int)
            pdc.nacks += 1
        elif packet.psn is None:
            pdc.acks += 1
        else:
            pdc.requests[packet.opcode or "none"] += 1
            pdc.psns.add((packet.src, packet.psn))
    return dict(found)


def findings(path: str, *rules: str) -> list[tuple[str, int, str]]:
    """Return the rules that a capture breaks, each with its packet and what was seen."""
    return [(one.rule.id, one.packet + 1, one.seen) for one in uetproto.open(path).audit(*rules)]


def slowest(path: str) -> tuple[str, int]:
    """Return the opcode and latency in ns of the slowest message."""
    times = [(one.latency, one.opcode) for one in uetproto.open(path).messages if one.latency is not None]
    latency, opcode = max(times)
    assert_type(latency, int)
    return opcode, latency


def spoilt(mutation: str) -> set[str]:
    """Return the rules that find a mutation."""
    run = uetproto.generate("mixed", packets=300, mutate={mutation: 0.1}, seed=4)
    return {finding.rule.id for finding in run.audit()}


# The author of a stack: traces of two builds --------------------------------------------------------------------------


def psns_over_time(path: str, picture: str) -> int:
    """Draw the PSNs of each sender over time, those sent again in another colour. Return the number of points."""
    from matplotlib.figure import Figure

    figure = Figure()
    axes = figure.add_subplot(xlabel="µs", ylabel="PSN")
    points: defaultdict[tuple[str, bool], list[tuple[float, int]]] = defaultdict(list)
    for packet in uetproto.open(path).filter("uetp.psn"):
        time, psn, retx = packet["frame.time_relative"], packet["uetp.psn"], packet["uetp.retx"]
        assert_type(time, float)
        assert_type(retx, bool)
        points[packet.src, retx].append((time * 1e6, psn))
    for (src, retx), of_one in points.items():
        axes.plot(*zip(*of_one, strict=True), "x" if retx else ".", label=f"{src}{' again' * retx}")
    axes.legend()
    figure.savefig(picture)
    return sum(map(len, points.values()))


def exported(path: str, table: str) -> int:
    """Write what was acknowledged, and by which packet, to a Parquet file. Return the number of rows."""
    capture = uetproto.open(path).filter("uetp.acked_in")
    counts = capture.to_parquet(table, ["number", "time", "src", "dst", "uetp.psn", "uetp.acked_in", "uetp.ack_time"])
    assert_type(counts, dict[str, int])
    return counts[table]


def compared(one: str, other: str) -> dict[str, list[str]]:
    """Return what differs between two captures: packets that only one of them has, and fields that changed."""
    result = uetproto.open(one).diff(uetproto.open(other))
    found: dict[str, list[str]] = {"missing": [], "extra": [], "changed": []}
    found["missing"] = [f"#{each.number_a}" for each in result.missing]
    found["extra"] = [f"#{each.number_b}" for each in result.extra]
    for each in result.changed:
        found["changed"] += [f"#{each.number_a} {change.field}" for change in each.fields]
    assert result.differs == any(found.values()) or result.moved
    return found


def named(path: str) -> dict[str, object]:
    """Return values of the first packet by their names; the types of all are known."""
    packet = uetproto.open(path).analysed()[0]
    assert_type(packet["uetp.acks"], list[int])
    assert_type(packet["uetp.payload"], bytes)
    assert_type(packet["frame.interface_name"], str)
    assert_type(packet["ip.addr"], list[int])
    return {name: packet.get(name) for name in ("uetp.psn", "uetp.acked_in", "frame.interface_name", "uetp.cack_psn")}


def fields(frame: bytes) -> tuple[int, int]:
    """Return two fields of a frame: the types of both are known."""
    packet = uetproto.decode(frame)
    return packet["ipv4"]["src"], packet["pds.ack"]["cack_psn"]


def lossy(drop: float, seed: int) -> tuple[bool, dict[str, int]]:
    """Return whether a transfer with loss arrived, and how often packets were sent again, by cause."""
    run = uetproto.run("gradient", {"payload_mtu": 1024, "faults.drop": drop}, seed=seed)
    return run.result.match and run.audit().ok, run.stats().resent


def sweep(hosts: Iterable[int]) -> list[tuple[str, int, float, int]]:
    """Return how long an incast takes in µs, and how much is trimmed, with and without congestion control."""
    found = []
    for number in hosts:
        for cc in ("off", "nscc"):
            run = uetproto.fabric("incast", hosts=number, flow_size="16 KiB", cc=cc)
            times = run.result.fct
            if times is None or not run.ok:
                raise RuntimeError(run.result.failure)
            found.append((cc, number, times.max / 1e6, run.result.trims))
    return found


def steps(algorithm: str) -> int:
    """Return the steps of an all_reduce over four ranks."""
    return uetproto.collective("all_reduce", ranks=4, algorithm=algorithm, bytes="4 KiB").result.steps


def refused(path: str) -> list[str]:
    """Return what is said of mistakes."""
    found = []
    for mistake in ("uetp.pns == 1", "uetp.psn = 1", "ip.src == 10.0.0"):
        try:
            uetproto.open(path).filter(mistake)
        except uetproto.UetError as error:
            found.append(str(error))
    return found
