# SPDX-License-Identifier: GPL-2.0-only
"""RoCE in Construct, Scapy and columns: what `decode` says, and `scapy.contrib.roce` beside it."""

import random
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from construct import ConstructError
from scapy.contrib import roce as contrib
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from tests.support.columns import SHARED, agrees, write
from tests.support.each import each
from tests.support.effort import effort
from tests.support.schemas import layers_in
from tests.support.wire.roce_frames import BY_NAME, GOLDEN, KINDS, Golden, frame_of, packet_of
from uetproto import Layer, LocalError, columns, decode, encode
from uetproto import layers as uet
from uetproto.layers.fields import NAMES
from uetproto.schemas import LRH, ROCE, SCHEMAS
from uetproto.wire.capture import pcap
from uetproto.wire.codec import codec_of
from uetproto.wire.forms import ROCE_FORMS
from uetproto.wire.headers.ethernet import ERF
from uetproto.wire.headers.roce import RD_OPCODES, SEQUENCES

WRITE = BY_NAME["write"].frame


@pytest.fixture(autouse=True)
def _bound() -> Iterator[None]:
    before = [(lower, list(lower.payload_guess)) for lower in (UDP, Ether, Dot1Q)]
    uet.bind_roce()
    yield
    uet.unbind_roce()
    for lower, guesses in before:
        assert lower.payload_guess == guesses


def dissected(frame: bytes, link: str = "ethernet") -> Any:
    return (uet.Lrh if link == "infiniband" else Ether)(frame)


# Construct ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_schemas_read_the_golden_frames(golden: Golden) -> None:
    found = decode(golden.frame, link=golden.link)
    start = 0 if golden.link == "infiniband" else next(i for i, one in enumerate(found.layers) if one.form == "bth")
    schema = LRH if golden.link == "infiniband" else ROCE
    data = golden.frame[found.layers[start].offset :]
    parsed = schema.parse(data)
    assert layers_in(parsed) == [(layer.form, dict(layer.values)) for layer in found.layers[start:]]
    assert (parsed.payload, parsed.pad) == (found.payload, found.pad)
    assert schema.build(parsed) == data


@each("opcode", SEQUENCES)
def test_schemas_know_every_opcode(opcode: int) -> None:
    frame = frame_of(opcode, random.Random(opcode))
    assert [form for form, _ in layers_in(ROCE.parse(frame[42:]))] == ["bth", *(h.name for h in SEQUENCES[opcode])]
    if SEQUENCES[opcode]:
        with pytest.raises(ConstructError):
            ROCE.parse(frame[42:52])


def test_schemas_refuse_unknown_opcodes() -> None:
    with pytest.raises(ConstructError, match="is reserved"):
        ROCE.parse(b"\xff" + bytes(40))
    assert SCHEMAS["bth"].build({"opcode": "RC_ACKNOWLEDGE"})[0] == 0x11


# Scapy ----------------------------------------------------------------------------------------------------------------


def test_there_is_a_layer_for_every_form() -> None:
    names = [cls.__name__ for cls in uet.ROCE_LAYERS.values()]
    assert names == [
        "Lrh", "Grh", "Bth", "Rdeth", "Deth", "Xrceth", "Reth", "AtomicEth", "Feth", "Aeth", "AtomicAckEth", "Imm",
        "Ieth", "Cnp",
    ]  # fmt: skip
    assert all(getattr(uet, name) is cls for name, cls in zip(names, uet.ROCE_LAYERS.values(), strict=True))
    assert set(names) | {"bind_roce", "unbind_roce", "RoceIcrc", "RoceVcrc"} <= set(uet.__all__)


@pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.name)
def test_golden_frames(golden: Golden) -> None:
    found, packet = decode(golden.frame, link=golden.link), dissected(golden.frame, golden.link)
    assert bytes(packet) == golden.frame
    assert uet.layer_values(packet) == [(layer.form, dict(layer.values)) for layer in found.layers]
    assert packet[uet.RoceIcrc].ok is True
    assert packet[uet.RoceIcrc].pad == found.pad
    again = packet.copy()
    del again[uet.RoceIcrc].icrc
    if golden.link == "infiniband":
        del again[uet.RoceVcrc].vcrc
    again.clear_cache()
    assert bytes(again) == golden.frame


@each("kind", KINDS)
@each("opcode", SEQUENCES)
def test_every_opcode(opcode: int, kind: str) -> None:
    rng = random.Random(f"{opcode} {kind}")
    uet.bind_roce(rd="headers")
    for size in effort((0, 1, 6), (0, 1, 4, 6), (0, 1, 4, 6)):
        frame = frame_of(opcode, rng, kind, size)
        link = "infiniband" if kind in ("local", "global") else "ethernet"
        found, packet = decode(frame, link=link, rd="headers"), dissected(frame, link)
        assert uet.layer_values(packet) == [(layer.form, dict(layer.values)) for layer in found.layers]
        assert packet[uet.RoceIcrc].ok is True
        assert (packet[Raw].load if Raw in packet else b"") == found.payload
        assert bytes(packet) == frame
        damaged = bytearray(frame)
        damaged[-8 if link == "infiniband" else -5] ^= 1
        assert dissected(bytes(damaged), link)[uet.RoceIcrc].ok is False


def test_building() -> None:
    ethernet = Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")
    ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=2, flags="DF", id=0)
    bth = uet.Bth(opcode="RC_RDMA_WRITE_ONLY", m=1, p_key=0xFFFF, destqp=0x12, psn=5, a=1)
    reth = uet.Reth(va=0x20000000, r_key=0x1234, dma_length=5)
    assert bytes(ethernet / ip / UDP(sport=49192) / bth / reth / b"hello") == WRITE
    v1 = uet.Grh(tclass=2, hoplmt=64, sgid=(0xFE80 << 112) + 1, dgid=(0xFE80 << 112) + 2)
    send = uet.Bth(opcode="RC_SEND_ONLY", m=1, p_key=0xFFFF, destqp=0x12, psn=5, a=1)
    assert bytes(ethernet / v1 / send / b"data") == BY_NAME["RoCEv1"].frame
    native = uet.Lrh(vl=1, sl=2, dlid=5, slid=7)
    assert bytes(native / send / b"data") == BY_NAME["native"].frame
    wrong = Ether(bytes(ethernet / ip / UDP(sport=49192) / bth / reth / b"abcd" / uet.RoceIcrc(icrc=7)))
    assert wrong[uet.RoceIcrc].icrc == 7
    assert wrong[uet.RoceIcrc].ok is False
    assert decode(bytes(wrong)).trailer == ("icrc", 7, False)


@pytest.mark.parametrize(("form", "old"), NAMES)
def test_names_of_the_table_are_accepted_with_a_warning(form: str, old: str) -> None:
    cls, name = uet.ROCE_LAYERS[form], NAMES[form, old]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        packet = cls(**{old: 5})
        assert getattr(packet, old) == 5
        setattr(packet, old, 6)
        assert packet.sprintf(f"%{old}%") == "6"
        assert packet.command() == f"{cls.__name__}({name}=6)"
        delattr(packet, old)
    assert {str(one.message) for one in told} == {f"the field {old} of {cls.__name__} is called {name}"}
    assert {one.filename for one in told} == {__file__}
    assert (len({one.lineno for one in told}), {one.category for one in told}) == (5, {DeprecationWarning})
    assert getattr(packet, name) == 0
    assert (name in dir(packet), old in dir(packet)) == (True, False)


def test_rd_is_raw_unless_asked_for() -> None:
    frame = frame_of(0x4A, random.Random(1), size=4)
    assert Ether(frame)[uet.Bth].payload.__class__ is Raw
    uet.bind_roce(rd="headers")
    assert uet.Rdeth in Ether(frame)
    with pytest.raises(LocalError, match="rd: 'all' is not legal; legal: raw, headers"):
        uet.bind_roce(rd="all")


def test_random_bytes_are_kept() -> None:
    rng = random.Random(9)
    for _ in range(400):
        kind = rng.choice(KINDS)
        frame = bytearray(frame_of(rng.getrandbits(8), rng, kind, rng.randrange(12)))
        for _ in range(rng.randrange(3)):
            frame[rng.randrange(len(frame))] = rng.getrandbits(8)
        first = {"ipv4": 42, "ipv6": 62, "v1": 14}.get(kind, 1)  # Scapy's own layers want to be whole
        data = bytes(frame[: rng.randrange(first, len(frame) + 1)])
        assert bytes(dissected(data, "infiniband" if kind in ("local", "global") else "ethernet")) == data


def test_answers() -> None:
    request, answer = Ether(WRITE)[uet.Bth], Ether(BY_NAME["ack"].frame)[uet.Bth]
    assert answer.answers(request)
    assert not request.answers(answer)
    assert not Ether(BY_NAME["nak"].frame)[uet.Bth].answers(request)  # another PSN


def test_ours_come_first_and_go_again() -> None:
    """`scapy.contrib.roce` is loaded here, after our layers."""
    assert uet.Bth in Ether(WRITE)
    assert uet.Grh in Ether(BY_NAME["RoCEv1"].frame)
    uet.unbind_roce()
    assert contrib.BTH in Ether(WRITE)
    assert contrib.GRH in Ether(BY_NAME["RoCEv1"].frame)
    uet.bind_roce(udp_port=4000)
    assert contrib.BTH in Ether(WRITE)
    assert uet.Bth in IP(bytes(IP() / UDP(dport=4000) / Raw(WRITE[42:])))
    uet.unbind_roce()


ORDERS = {
    "ours first": (
        "from uetproto import layers as uet\nassert uet.Bth\nimport scapy.contrib.roce as contrib\nuet.bind_roce()"
    ),
    "ours imported before theirs and made behind them": (
        "from uetproto import layers as uet\nimport scapy.contrib.roce as contrib\nuet.bind_roce()"
    ),
    "ours bound before theirs is there": (
        "from uetproto import layers as uet\nuet.bind_roce()\nimport scapy.contrib.roce as contrib"
    ),
    "theirs first": "import scapy.contrib.roce as contrib\nfrom uetproto import layers as uet\nuet.bind_roce()",
}
BOTH = f"""
frame = bytes.fromhex({WRITE.hex()!r})
assert uet.Bth in Ether(frame) and contrib.BTH not in Ether(frame)
assert bytes(Ether(frame)) == frame
uet.unbind_roce()
assert contrib.BTH in Ether(frame) and uet.Bth not in Ether(frame)
built = Ether(frame)
del built[contrib.BTH].icrc
built.clear_cache()
assert bytes(built) == frame
uet.bind_roce()
assert uet.Bth in Ether(frame)
"""
NEVER_BOUND = f"from uetproto import layers as uet\nassert uet.Bth not in Ether(bytes.fromhex({WRITE.hex()!r}))"


def test_side_by_side_in_every_order_and_only_when_asked_for() -> None:
    """Each program runs in a process that has imported what both layers need of Scapy, and neither of them."""
    programs = {order: first + BOTH for order, first in ORDERS.items()} | {"never bound": NEVER_BOUND}
    forks = f"""
import os
import scapy.layers.inet6
from scapy.layers.l2 import Ether
for name, program in {programs!r}.items():
    if not os.fork():
        exec(program)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""
    done = subprocess.run([sys.executable, "-c", forks], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("golden", [one for one in GOLDEN if "udp" in dict(one.layers)], ids=lambda one: one.name)
def test_scapy_computes_the_same_icrc(golden: Golden) -> None:
    uet.unbind_roce()
    packet = Ether(golden.frame)
    del packet[contrib.BTH].icrc
    packet.clear_cache()
    assert bytes(packet) == golden.frame


@each("opcode", sorted(set(SEQUENCES) - {0x81, 0x11, 0x51}))
def test_scapy_computes_the_same_icrc_of_every_opcode(opcode: int) -> None:
    """The payload of its BTH is Raw; it wants `m`, `fecn` and all that as they are."""
    uet.unbind_roce()
    rng = random.Random(opcode)
    for kind, lower in (("ipv4", IP), ("ipv6", IPv6)):
        for size in range(5):
            frame = frame_of(opcode, rng, kind, size)
            packet = Ether(frame)
            assert packet[contrib.BTH].underlayer.underlayer.__class__ is lower
            del packet[contrib.BTH].icrc
            packet.clear_cache()
            assert bytes(packet) == frame


# Columns --------------------------------------------------------------------------------------------------------------

LINKS = (pcap.ETHERNET, pcap.INFINIBAND, pcap.ERF)


def any_frame(rng: random.Random) -> tuple[int, bytes, int]:
    kind = rng.choice((*KINDS, "erf"))
    frame = bytearray(frame_of(rng.getrandbits(8), rng, "global" if kind == "erf" else kind, rng.randrange(20)))
    link = pcap.INFINIBAND if kind in ("local", "global") else pcap.ETHERNET
    if kind == "erf":
        extensions = b"".join(bytes([0x80 * more]) + bytes(7) for more in rng.choice(((), (0,), (1, 0), (1, 1))))
        values = {"ext": bool(extensions), "type": rng.choice((21, 21, 21, 2)), "wlen": len(frame)}
        frame[:0] = codec_of(ERF).encode(values) + extensions
        link = pcap.ERF
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = min(int(rng.expovariate(1 / 30)), len(frame) - 1)
        frame[at] = rng.choice((0, 6, 17, 0x1B, 0x45, 0x60, frame[at] ^ 1 << rng.randrange(8), rng.getrandbits(8)))
    if rng.random() < 0.3:
        del frame[rng.randrange(len(frame) + 1) :]
    return link, bytes(frame), len(frame) + rng.choice((0, 0, 9))


@pytest.mark.parametrize("rd", ["raw", "headers"])
@pytest.mark.parametrize("seed", range(3))
def test_columns_are_what_decode_finds(tmp_path: Path, seed: int, rd: str) -> None:
    rng = random.Random(seed)
    frames = [any_frame(rng) for _ in range(effort(1200, 2500, 2500))]
    path = write(tmp_path / "any.pcapng", frames, LINKS)
    found = agrees(path, rd=rd)
    assert set(ROCE_FORMS) - (set() if rd == "headers" else {"rdeth"}) <= set(found.forms)
    agrees(path, roce_port=4000)


def judged(path: Path, rd: str) -> list[int]:
    verdicts = []
    with pcap.open_capture(path) as reader:
        for record in reader:
            packet = decode(record.data, link=pcap.LINK_NAMES[record.link], length=record.length, rd=rd)
            is_icrc = packet.trailer is not None and packet.trailer.kind == "icrc"
            odd = packet.error is not None and "more than IP carries" in packet.error.reason
            verdicts.append(int(packet.trailer.ok or 0) if is_icrc and packet.trailer and not odd else -1)
    return verdicts


@pytest.mark.parametrize("rd", ["raw", "headers"])
def test_columns_judge_the_icrc_as_decode_does(tmp_path: Path, rd: str) -> None:
    rng = random.Random(11)
    frames = [any_frame(rng) for _ in range(effort(1200, 2500, 2500))]
    stacked = [(pcap.ETHERNET, data, len(data)) for data in (options_and_extensions(rng) for _ in range(200))]
    path = write(tmp_path / "any.pcapng", [*frames, *stacked], LINKS)
    found = columns.read(path, rd=rd, icrc=True)
    assert found.icrc is not None
    assert found.icrc.tolist() == judged(path, rd)
    assert {-1, 0, 1} == set(found.icrc.tolist())
    pieces = [batch.icrc for batch in columns.iter_batches(path, 700, rd=rd, icrc=True)]
    assert np.concatenate(pieces).tolist() == found.icrc.tolist()  # type: ignore[arg-type]
    assert columns.read(path).icrc is None


def options_and_extensions(rng: random.Random) -> bytes:
    """With IPv4 options or an IPv6 extension header; half of the ICRCs are wrong."""
    packet = packet_of(4, rng, rng.choice(("ipv4", "ipv6")), 8)
    if packet.layers[1].form == "ipv4":
        packet.layers.insert(2, Layer("ipv4.options", {"raw": rng.randbytes(8)}))
    else:
        packet.layers[1] = Layer("ipv6", {**packet.layers[1].values, "next_header": 60})
        packet.layers.insert(2, Layer("ipv6.ext", {"raw": b"\x11\0" + rng.randbytes(6)}))
    frame = bytearray(encode(packet, fill=True))
    frame[-5] ^= rng.getrandbits(1)
    return bytes(frame)


def test_columns_of_adapters(tmp_path: Path) -> None:
    folder = SHARED / "captures" / "roce"
    if not folder.is_dir():
        pytest.skip(f"{folder} is absent")
    for path in sorted(folder.glob("*.pcap")):
        found = columns.read(path, icrc=True)
        assert found.icrc is not None
        assert found.icrc.tolist() == judged(path, "raw")


def test_columns_of_the_other_forms(tmp_path: Path) -> None:
    pause = bytes.fromhex("0180c200000100000000000288080101000900ff") + bytes(40)
    frames = [(pcap.ETHERNET, data, len(data)) for data in (pause, WRITE, pause[:15] + b"\2" + pause[16:])]
    found = agrees(write(tmp_path / "pause.pcap", frames))
    assert found["pfc"]["pause0"].tolist() == [255]
    assert found["reth"]["r_key"].tolist() == [0x1234]


def test_columns_refuse_what_is_not_legal(tmp_path: Path) -> None:
    path = write(tmp_path / "x.pcap", [(pcap.ETHERNET, WRITE, len(WRITE))])
    with pytest.raises(LocalError, match="rd: 'all' is not legal; legal: raw, headers"):
        columns.read(path, rd="all")
    with pytest.raises(LocalError, match="roce_port: 65536"):
        columns.read(path, roce_port=65536)


def test_encode_is_what_scapy_builds() -> None:
    rng = random.Random(4)
    for opcode in sorted(set(SEQUENCES) - set(RD_OPCODES)):
        packet = packet_of(opcode, rng, "ipv4", 5)
        frame = encode(packet, fill=True)
        again = Ether(frame)
        del again[uet.RoceIcrc].icrc
        del again[uet.Bth].padcnt
        again.clear_cache()
        assert bytes(again) == frame
