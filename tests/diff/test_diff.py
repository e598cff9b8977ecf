# SPDX-License-Identifier: GPL-2.0-only
"""`diff`: what is compared, what is left out, several interfaces, sealed packets, limits."""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest

import uetproto
from tests.support.cli.frames import ack, close, frame, write
from tests.support.diff_pairs import Again, Frame, Frames, renumbered, retimed
from tests.support.traffic.generate import made
from uetproto import LocalError
from uetproto.analysis.commands import collective
from uetproto.diff import diff
from uetproto.traffic.generate import generate
from uetproto.traffic.profile import load
from uetproto.wire.capture.pcap import ETHERNET, PcapngWriter

REQUESTS = [frame(11, 12, *write(73728 + at, 1024 * at, syn=at < 2), payload=bytes([at]) * 1024) for at in range(6)]
ACKS = [frame(12, 11, *ack(73728 + at)) for at in range(6)]
CLOSE = frame(11, 12, close(73734))


def frames(*data: bytes, step: int = 1_000) -> Frames:
    return Frames(Frame(step * at, one) for at, one in enumerate(data))


def pcapng(path: Path, *interfaces: tuple[str, list[bytes]]) -> Path:
    with PcapngWriter(path) as writer:
        for number, (name, data) in enumerate(interfaces):
            writer.add_interface(name, ETHERNET)
            for at, one in enumerate(data):
                writer.write(1_000 * at, one, interface=number)
    return path


def test_directions_may_interleave_otherwise_but_not_change_their_own_order() -> None:
    a = frames(*REQUESTS, *ACKS)
    other = [one for pair in zip(REQUESTS, ACKS, strict=True) for one in pair]
    assert not diff(Again(a), Again(frames(*other))).differs
    swapped = diff(Again(a), Again(frames(REQUESTS[1], REQUESTS[0], *REQUESTS[2:], *ACKS)))
    assert swapped.counts() == {"changed": 0, "moved": 1, "missing": 0, "extra": 0}
    assert abs(swapped.moved[0].by) == 1
    assert diff(Again(a), Again(frames(*other)), strict=True).moved


def test_strict_compares_what_is_left_out_otherwise() -> None:
    a = frames(*REQUESTS, *ACKS, CLOSE)
    assert not diff(Again(a), Again(a), strict=True).differs
    later = retimed(a, Random(1))
    assert not diff(Again(a), Again(later)).differs
    told = diff(Again(a), Again(later), strict=True)
    assert {field.field for one in told.changed for field in one.fields} == {"time_ns"}
    assert len(told.changed) == len(a)
    other = renumbered(a, Random(1))
    assert not diff(Again(a), Again(other)).differs
    names = {field.field for one in diff(Again(a), Again(other), strict=True).changed for field in one.fields}
    assert names == {
        "udp.sport", "pds.rod_req.syn.psn", "pds.rod_req.syn.spdcid", "pds.rod_req.psn", "pds.rod_req.spdcid",
        "pds.rod_req.dpdcid", "pds.ack.cack_psn", "pds.ack.spdcid", "pds.ack.dpdcid", "pds.cp.psn", "pds.cp.spdcid",
        "pds.cp.dpdcid", "trailer value",
    }  # fmt: skip


def test_a_psn_out_of_line_is_told_with_the_one_that_would_be_in_line() -> None:
    a = frames(*REQUESTS, *ACKS)
    other = renumbered(a, Random(2))
    wrong = list(other)
    wrong[9] = Frame(wrong[9].time_ns, renumbered(frames(frame(12, 11, *ack(73731 + 5))), Random(2))[0].data)
    (one,) = diff(Again(a), Again(Frames(wrong))).changed
    (field,) = one.fields
    assert (one.number_a, one.number_b, field.field) == (10, 10, "pds.ack.cack_psn")
    assert field.a == 73731
    assert field.expected is not None
    assert field.b == field.expected + 5


def test_a_packet_whose_headers_became_others_is_one_packet_by_its_psn_and_place() -> None:
    packet = uetproto.decode(REQUESTS[3])
    packet["pds.rod_req"]["next_hdr"] = 2
    other = frames(*REQUESTS[:3], uetproto.encode(packet), *REQUESTS[4:])
    (one,) = diff(Again(frames(*REQUESTS)), Again(other)).differences
    assert (one.number_a, one.number_b, str(one.kind)) == (4, 4, "changed")
    assert {"pds.rod_req.next_hdr", "form"} <= {field.field for field in one.fields}


def test_the_queue_pair_of_the_first_answer_is_told_although_no_other_was_seen_before() -> None:
    with TemporaryDirectory() as folder:
        path = f"{folder}/sharp.pcapng"
        collective(
            "all_reduce", algorithm="sharp", ranks=2, bytes="8KiB", topology="leaf-spine", transport="roce", output=path
        )
        a = Frames([Frame(one.time_ns, one.data) for one in uetproto.open(path)])
    at = next(at for at, one in enumerate(a) if "aeth" in uetproto.decode(one.data))
    packet = uetproto.decode(a[at].data)
    packet["bth"]["destqp"] += 128
    b = Frames([*a[:at], Frame(a[at].time_ns, uetproto.encode(packet)), *a[at + 1 :]])
    (one,) = diff(Again(a), Again(b)).differences
    assert (one.number_a, "bth.destqp" in {field.field for field in one.fields}) == (at + 1, True)


def test_fields_that_are_ignored() -> None:
    a, other = frames(*REQUESTS), frames(*(one[:22] + b"\x3f" + one[23:] for one in REQUESTS))  # the TTL
    found = diff(Again(a), Again(other))
    assert {field.field for one in found.changed for field in one.fields} == {"ipv4.ttl", "ipv4.checksum"}
    assert not diff(Again(a), Again(other), ignore=["ipv4", "ipv4.checksum"]).differs
    for wrong in ("ipv4.tlt", "", "nothing", "pds.rod_req.ttl"):
        with pytest.raises(LocalError, match="there is no such field"):
            diff(Again(a), Again(other), ignore=[wrong])


def test_interfaces_belong_together_by_name_or_else_by_place(tmp_path: Path) -> None:
    one = pcapng(tmp_path / "1.pcapng", ("a.0", REQUESTS), ("b.0", ACKS))
    two = pcapng(tmp_path / "2.pcapng", ("b.0", ACKS[:5]), ("a.0", REQUESTS))
    three = pcapng(tmp_path / "3.pcapng", ("x", REQUESTS), ("y", ACKS[1:]), ("z", [CLOSE]))
    captures = [uetproto.open(path) for path in (one, two, three)]
    assert [(found.number_a, found.interface) for found in captures[0].diff(captures[1]).missing] == [(12, "b.0")]
    result = captures[0].diff(captures[2])
    assert [found.number_a for found in result.missing] == [7]
    assert [(found.number_b, found.interface) for found in result.extra] == [(12, "z")]


def test_a_mutated_packet_in_a_sealed_capture_is_found_with_the_keys(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    plain = made(tmp_path, "sealed", packets=120)
    found = generate(
        load("sealed"), str(tmp_path / "b" / "sealed.pcapng"), packets=120, mutations={"reserved-bit": 0.05}
    )
    keys = f"{plain}.keys.toml"
    a, b = (uetproto.open(path, keys=keys) for path in (plain, tmp_path / "b" / "sealed.pcapng"))
    result = a.diff(b)
    assert len(result.changed) == len(result.differences) == found.mutations["reserved-bit"] > 0
    assert all("rsvd" in field.field for one in result.changed for field in one.fields)
    closed = uetproto.open(plain).diff(uetproto.open(tmp_path / "b" / "sealed.pcapng"))
    assert not closed.differs
    assert closed.unopened == 120


def test_beyond_a_number_of_differences_packets_are_counted_alone() -> None:
    a = frames(*REQUESTS, *ACKS)
    result = diff(Again(a), Again(Frames()), most=5)
    assert len(result.missing) == 12
    assert [one.a is None for one in result.differences] == [False] * 5 + [True] * 7
    assert [one["a"]["number"] for one in result.as_dict()["differences"]] == list(range(1, 13))


def test_nothing_against_nothing() -> None:
    result = diff(Again(Frames()), Again(Frames()))
    assert not result.differs
    assert str(result) == ""


def test_noise_differs_from_itself_nowhere() -> None:
    rng = Random(3)
    noise = frames(*(rng.randbytes(rng.randrange(120)) for _ in range(200)))
    assert not diff(Again(noise), Again(noise)).differs
    assert len(diff(Again(noise), Again(Frames(noise[1:]))).missing) == 1
