"""A user's program with captures, which `mypy --strict` accepts."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import assert_type

import uetproto


def psns(path: str) -> list[int]:
    """Return the PSNs of the requests of ROD."""
    found = []
    for packet in uetproto.open(path):
        if "pds.rod_req" in packet:
            psn = packet["pds.rod_req"]["psn"]
            assert_type(psn, int)
            found.append(psn)
    return found


def slowest(path: str) -> tuple[str, int]:
    """Return the opcode and latency in ns of the slowest message."""
    messages = uetproto.open(path).messages
    slow = max((one for one in messages if one.latency is not None), key=lambda one: one.latency or 0)
    return slow.opcode, slow.latency or 0


def lines(path: str) -> list[str]:
    """Return a line for each packet."""
    return [f"{one.number} {one.time:%H:%M} {one.src} {one.dst} {one.protocol} {one.opcode} {one.psn}"
            for one in uetproto.open(path)]  # fmt: skip


def wrong(path: str) -> list[str]:
    """Return the rules that a capture breaks."""
    return [finding.rule.id for finding in uetproto.open(path).audit()]


def fields(frame: bytes) -> tuple[int, int]:
    """Return two fields of a frame: the types of both are known."""
    packet = uetproto.decode(frame)
    return packet["ipv4"]["src"], packet["pds.ack"]["cack_psn"]


def again(path: str) -> list[tuple[int, int | None]]:
    """Return the retransmissions of a capture: number, and what each repeats."""
    resent = uetproto.open(path).analysed().filter("uetp.analysis.retransmission")
    return [(packet.number, packet.get("uetp.retransmission_of")) for packet in resent]


def named(path: str) -> dict[str, object]:
    """Return values of the first packet by their names; the types of all are known."""
    packet = uetproto.open(path).analysed()[0]
    assert_type(packet["uetp.psn"], int)
    assert_type(packet["uetp.retx"], bool)
    assert_type(packet["uetp.acks"], list[int])
    assert_type(packet["frame.time_relative"], float)
    assert_type(packet["uetp.payload"], bytes)
    assert_type(packet["frame.interface_name"], str)
    assert_type(packet["ip.addr"], list[int])
    return {name: packet.get(name) for name in ("uetp.psn", "uetp.acked_in", "frame.interface_name", "uetp.cack_psn")}


@dataclass(frozen=True)
class Row:
    """A row is what a sweep found for one setting."""

    cc: str
    hosts: int
    last_us: float
    trimmed: int


def sweep(hosts: Iterable[int]) -> list[Row]:
    """Return how long an incast takes, with and without congestion control."""
    found = []
    for number in hosts:
        for cc in ("off", "nscc"):
            run = uetproto.fabric("incast", hosts=number, flow_size="16 KiB", cc=cc)
            times = run.result.fct
            if times is None or not run.ok:
                raise RuntimeError(run.result.failure)
            assert_type(times.max, int)
            found.append(Row(cc, number, times.max / 1e6, run.result.trims))
    return found


def lossy(drop: float, seed: int) -> tuple[bool, dict[str, int]]:
    """Return whether a transfer with loss arrived, and how often packets were sent again, by cause."""
    run = uetproto.run("gradient", {"payload_mtu": 1024, "faults.drop": drop}, seed=seed)
    return run.result.match and run.audit().ok, run.stats().resent


def spoilt(mutation: str) -> set[str]:
    """Return the rules that find a mutation."""
    run = uetproto.generate("mixed", packets=300, mutate={mutation: 0.1}, seed=4)
    return {finding.rule.id for finding in run.audit()}


def steps(algorithm: str) -> int:
    """Return the steps of an all_reduce over four ranks."""
    run = uetproto.collective("all_reduce", ranks=4, algorithm=algorithm, bytes="4 KiB")
    return run.result.steps


def compare(one: str, other: str) -> bool:
    """Return whether two captures say the same."""
    return not uetproto.open(one).diff(uetproto.open(other)).differs


def refused() -> list[str]:
    """Return what is said of mistakes."""
    found = []
    for mistake in ("uetp.pns == 1", "uetp.psn = 1", "ip.src == 10.0.0"):
        try:
            uetproto.open(__file__.replace("user_script.py", "none")).filter(mistake)
        except (uetproto.UetError, OSError) as error:
            found.append(type(error).__name__)
    return found
