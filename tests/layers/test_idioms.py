# SPDX-License-Identifier: GPL-2.0-only
"""What Scapy's users do with any layer works with ours: ls, explore, fuzz, command, copy, pickle, show, answers."""

import ast
import builtins
import importlib
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scapy.config import conf
from scapy.error import Scapy_Exception
from scapy.layers import inet, l2
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.main import load_layer
from scapy.packet import Raw, explore, fuzz, ls

from tests.layers import user_script
from tests.support.paths import PCAPS
from tests.support.wire.roce_frames import GOLDEN
from uetproto import layers as uet
from uetproto.errors import LocalError
from uetproto.layers import roce as roce_module
from uetproto.wire.capture import pcap

LAYERS = {**uet.LAYERS, **uet.ROCE_LAYERS, **uet.SHARP_LAYERS, **uet.MCAST_LAYERS}
ENDS = (uet.UetCrc32c, uet.UetIcv, uet.RoceIcrc, uet.RoceVcrc, uet.SharpPad, uet.SharpRanks, uet.UetMessage)
each = pytest.mark.parametrize("cls", [*LAYERS.values(), *ENDS], ids=lambda cls: cls.__name__)
NAMES = {**vars(uet), "Raw": Raw}


@each
def test_every_layer_does_what_layers_do(cls: Any, capsys: pytest.CaptureFixture[str]) -> None:
    packet = cls()
    ls(cls)
    ls(packet)
    listed = capsys.readouterr().out
    assert all(field.name in listed and field.name in dir(packet) for field in cls.fields_desc)
    assert bytes(eval(packet.command(), NAMES)) == bytes(packet)
    assert bytes(packet.copy()) == bytes(pickle.loads(pickle.dumps(packet))) == bytes(packet)
    assert cls.__name__ in packet.command()
    assert all(f"{field.name.ljust(10)}= " in packet.show(dump=True) for field in cls.fields_desc)
    assert packet.show2(dump=True)
    assert packet.summary()
    random = fuzz(cls())
    assert random.summary()
    dissected = cls(bytes(random))
    assert pickle.loads(pickle.dumps(dissected)) == dissected
    assert bytes(eval(dissected.command(), NAMES)) == bytes(dissected)


def test_the_command_of_a_frame_makes_the_same_bytes() -> None:
    names, frames = {**NAMES, **vars(inet), **vars(l2)}, []
    uet.bind_roce()
    uet.bind_sharp()
    try:
        for capture in ("gradient", "collective-sharp", "collective-sharp-uet", "ses-write", "gradient-roce"):
            with pcap.open_capture(PCAPS / f"{capture}.pcapng") as reader:
                frames += [(Ether, record.data) for record, _ in zip(reader, range(5), strict=False)]
        frames += [(Ether, data[: len(data) - cut]) for _, data in frames[:] for cut in (1, 4, 6)]
        natives = [golden.frame for golden in GOLDEN if golden.link == "infiniband"]
        frames += [(uet.Lrh, data[: len(data) - cut]) for data in natives for cut in (0, 2, 6)]
        for first, frame in frames:
            assert bytes(eval(first(frame).command(), names)) == frame
    finally:
        uet.unbind_sharp()
        uet.unbind_roce()


def test_the_command_of_a_packet_without_its_end() -> None:
    frame = bytes(IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / uet.PdsAck())
    assert "received" not in IP(frame).command()
    short = bytearray(frame[:-4])
    short[3], short[25] = short[3] - 4, short[25] - 4  # lengths of IP and UDP
    assert IP(bytes(short)).command().endswith(", received=True)")
    assert "received" not in (IP() / UDP() / uet.PdsAck()).command()


@pytest.fixture
def builtins_kept() -> Iterator[None]:
    """`explore` and `load_layer` add the names of a module to the builtins, as they are meant for a prompt."""
    before = set(vars(builtins))
    yield
    for name in set(vars(builtins)) - before:
        delattr(builtins, name)


@pytest.mark.parametrize("module", [uet, "uetproto", "scapy.layers.uetproto"], ids=str)
@pytest.mark.usefixtures("builtins_kept")
def test_explore_lists_the_layers(module: Any, capsys: pytest.CaptureFixture[str]) -> None:
    explore(module)
    printed = capsys.readouterr()
    assert {cls.__name__ for cls in LAYERS.values()} <= {
        line.split("|")[0].strip() for line in printed.out.splitlines()
    }
    assert printed.err == ""


@pytest.mark.usefixtures("builtins_kept")
def test_scapy_knows_the_modules(capsys: pytest.CaptureFixture[str]) -> None:
    explore(roce_module)
    printed = capsys.readouterr()
    assert "\nBth " in printed.out
    assert "\nPdsAck" not in printed.out
    load_layer("uetproto")
    assert vars(builtins)["PdsAck"] is uet.PdsAck
    described = dict(conf.layers.layers())  # which a layer of a module that Scapy cannot name breaks
    assert described["scapy.layers.uetproto.roce"].startswith("Every RoCE")
    assert importlib.import_module("scapy.layers.uetproto.roce") is roce_module
    ls("pdsnack")
    assert "PdsNackRudi : NACK for RUDI" in capsys.readouterr().out


def test_fuzz_keeps_what_is_set() -> None:
    packet = IP() / UDP() / fuzz(uet.PdsRudReq(psn=7)) / uet.SesRequestSmall(opcode="WRITE")
    assert {IP(bytes(packet))[uet.PdsRudReq].psn for _ in range(5)} == {7}
    assert len({bytes(fuzz(uet.PdsRudReq(psn=7))) for _ in range(5)}) > 1


def test_codes_flags_and_addresses_in_text_both_ways() -> None:
    nack = uet.PdsNack(nack_code="ROD_OOO")
    assert (nack.nack_code, nack.sprintf("%nack_code%")) == (0x0D, "ROD_OOO")
    nack.nack_code = "TRIMMED"
    assert nack.nack_code == 1
    sharp = uet.Sharp(flags="FIRST+LAST", op="SUM")
    assert (str(sharp.flags), bool(sharp.flags.FIRST), sharp.sprintf("%op%")) == ("LAST+FIRST", True, "SUM")
    grh = uet.Grh(sgid="fe80::1", dgid=2)
    assert (grh.sgid, grh.sprintf("%sgid% %dgid%")) == ((0xFE80 << 112) + 1, "fe80::1 ::2")
    assert uet.Grh(bytes(grh)).sgid == grh.sgid


@pytest.mark.parametrize(
    ("form", "field", "value", "legal"),
    [
        ("pds.nack", "nack_code", "ROD_OOOO", "ROD_OOO"),
        ("pds.nack", "nack_code", 256, "0 … 255"),
        ("pds.rud_req", "psn", 2**32, f"0 … {2**32 - 1}"),
        ("pds.rud_req", "psn", "seven", f"0 … {2**32 - 1}"),
        ("pds.rud_req", "clear_psn_offset", -(2**15) - 1, "-32768 … 32767"),
        ("pds.rud_req", "ar", 2, "0 … 1"),
        ("pds.rud_req", "psn", 1.5, f"0 … {2**32 - 1}"),
        ("pds.rud_req", "psn", b"7", f"0 … {2**32 - 1}"),
        ("ses.response", "opcode", "WRITE", "DEFAULT_RESPONSE, RESPONSE, RESPONSE_W_DATA, NO_RESPONSE"),
        ("bth", "opcode", "RC_SEND_ONLYY", "RC_SEND_ONLY"),
        ("grh", "sgid", "10.0.0.1", "an IPv6 address"),
        ("sharp", "flags", "FIRST+LATEST", "FIRST+"),
    ],
)
def test_values_that_do_not_fit_are_refused(form: str, field: str, value: Any, legal: str) -> None:
    for setting in (lambda: LAYERS[form](**{field: value}), lambda: setattr(LAYERS[form](), field, value)):
        with pytest.raises(Scapy_Exception) as caught:
            setting()
        assert isinstance(caught.value, LocalError)
        assert caught.value.name == field
        assert legal in caught.value.legal


def test_a_name_that_no_field_has_is_refused() -> None:
    with pytest.raises(uet.LayerError) as caught:
        uet.PdsNack(nakc_code=13)  # type: ignore[call-arg]
    assert "PdsNack has no such field (did you mean nack_code?); legal: type, next_hdr" in str(caught.value)
    assert isinstance(caught.value, AttributeError)  # as Scapy raises


def test_several_values_of_a_field_give_several_packets() -> None:
    packets = uet.PdsNack(nack_code=["TRIMMED", 4], nack_psn=(1, 3))
    assert packets.summary() == "NACK"
    assert {(packet.nack_code, packet.nack_psn) for packet in packets} == {(c, p) for c in (1, 4) for p in (1, 2, 3)}


def test_bindings_refuse_what_is_impossible() -> None:
    for call in (
        lambda: uet.bind_uet(70000), lambda: uet.bind_roce(rd="cooked"), lambda: uet.bind_roce(-1),
        lambda: uet.layer_values(b""),
    ):  # fmt: skip
        with pytest.raises(uet.LayerError, match="is not legal; legal: "):
            call()


# Answers


def roce(opcode: str, psn: int, *above: Any) -> Any:
    packet = uet.Bth(opcode=opcode, psn=psn)
    for layer in above:
        packet = packet / layer
    return packet


READ = roce("RC_RDMA_READ_REQUEST", 2**24 - 1, uet.Reth(dma_length=1000))
SWAP = roce("RC_COMPARE_SWAP", 9, uet.AtomicEth())
WRITE = roce("RC_RDMA_WRITE_ONLY", 9, uet.Reth())
AGG = {"tree_id": 1, "group_id": 2, "seq": 3}


@pytest.mark.parametrize(
    ("answer", "request_", "fits"),
    [
        (roce("RC_RDMA_READ_RESPONSE_FIRST", 2**24 - 1, uet.Aeth()), READ, True),
        (roce("RC_RDMA_READ_RESPONSE_MIDDLE", 0), READ, True),
        (roce("RC_RDMA_READ_RESPONSE_LAST", 2, uet.Aeth()), READ, True),
        (roce("RC_RDMA_READ_RESPONSE_LAST", 3, uet.Aeth()), READ, False),
        (roce("RC_RDMA_READ_RESPONSE_LAST", 2**24 - 2, uet.Aeth()), READ, False),
        (roce("RC_ACKNOWLEDGE", 1, uet.Aeth()), READ, True),
        (roce("RC_ATOMIC_ACKNOWLEDGE", 0, uet.Aeth(), uet.AtomicAckEth()), READ, False),
        (roce("RC_ATOMIC_ACKNOWLEDGE", 9, uet.Aeth(), uet.AtomicAckEth()), SWAP, True),
        (roce("RC_ATOMIC_ACKNOWLEDGE", 8, uet.Aeth(), uet.AtomicAckEth()), SWAP, False),
        (roce("RC_ACKNOWLEDGE", 9, uet.Aeth()), SWAP, True),
        (roce("RC_ACKNOWLEDGE", 9, uet.Aeth()), WRITE, True),
        (roce("RC_ATOMIC_ACKNOWLEDGE", 9, uet.Aeth(), uet.AtomicAckEth()), WRITE, False),
        (roce("RC_RDMA_READ_RESPONSE_ONLY", 9, uet.Aeth()), WRITE, False),
        (roce("RD_ACKNOWLEDGE", 9, uet.Aeth()), WRITE, False),
        (WRITE, WRITE, False),
        (roce("RC_ACKNOWLEDGE", 9), roce("RC_ACKNOWLEDGE", 9), False),
        (uet.Sharp(opcode="AGG_RESULT", **AGG), uet.Sharp(opcode="AGG_REQ", **AGG), True),
        (uet.Sharp(opcode="NACK", **AGG), uet.Sharp(opcode="AGG_REQ", **AGG), True),
        (uet.Sharp(opcode="LOCK_RESP", **AGG), uet.Sharp(opcode="AGG_REQ", **AGG), False),
        (uet.Sharp(opcode="AGG_RESULT", tree_id=1), uet.Sharp(opcode="AGG_REQ", **AGG), False),
        (uet.Sharp(opcode="AGG_RESULT"), uet.Sharp(opcode="AGG_RESULT"), False),
        (uet.Sharp(), uet.PdsAck(), False),
        (uet.PdsAck(), uet.Sharp(), False),
        (uet.SharpAm(method=0x81, tid=7), uet.SharpAm(method=1, tid=7), True),
        (uet.SharpAm(method=0x81, tid=8), uet.SharpAm(method=1, tid=7), False),
    ],
)  # fmt: skip
def test_answers_between_layers(answer: Any, request_: Any, fits: bool) -> None:
    assert bool(answer.answers(request_)) is fits
    if fits:
        assert answer.hashret() == request_.hashret()


def test_a_carried_message_answers_over_roce() -> None:
    uet.bind_roce()
    uet.bind_sharp()
    try:
        ask = uet.Sharp(opcode="AGG_REQ", op="SUM", dtype="INT", count=1, flags="FIRST+LAST", **AGG) / bytes(4)
        tell = uet.Sharp(opcode="AGG_RESULT", op="SUM", dtype="INT", count=1, flags="FIRST+LAST", **AGG) / bytes(4)
        sent = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / UDP(sport=4791) / roce("RC_SEND_ONLY", 5, ask)
        back = Ether() / IP(src="10.0.0.2", dst="10.0.0.1") / UDP(sport=4791) / roce("RC_SEND_ONLY", 800, tell)
        assert Ether(bytes(back))[IP].answers(Ether(bytes(sent))[IP])
        assert not Ether(bytes(sent))[IP].answers(Ether(bytes(back))[IP])
    finally:
        uet.unbind_sharp()
        uet.unbind_roce()


def test_the_program_of_a_user() -> None:
    """mypy --strict reads it, too (pyproject.toml)."""
    assert len(user_script.write("10.0.0.2", bytes(9000), 7)) == 3
    assert user_script.one_packet(5)[uet.PdsRudReq].psn == 5
    data = bytes(range(256)) * 40
    assert user_script.read_back(data) == data
    assert user_script.refusal("WRITE", "rud") is None
    assert str(user_script.refusal("ATOMIC", "rudi")) == "mode: 'rudi' is not legal with ATOMIC; legal: RUD, ROD"
    assert user_script.psns(uet.PdsRudReq(psn=7)) == (7, 8)
    assert [len(list(packet)) for packet in user_script.several()] == [6, 1]
    unknown, near, *others = user_script.mistakes()
    assert unknown.startswith("psm: PdsRudReq has no such field; legal: type, next_hdr")
    assert near.startswith("dma_len: Reth has no such field (did you mean dma_length?)")
    assert others == [
        "flowlabel: 'one' is not legal; legal: 0 … 1048575",
        "psn: 'one' is not legal; legal: 0 … 4294967295",
    ]


def test_the_stub_declares_what_there_is() -> None:
    tree = ast.parse(Path(uet.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    classes = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_"}
    imported = [alias.asname for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert sorted(classes) == sorted(cls.__name__ for cls in LAYERS.values())
    assert {*classes, *filter(None, imported)} == set(uet.__all__)
    for cls in LAYERS.values():
        node, names = classes[cls.__name__], [field.name for field in cls.fields_desc]
        (init,) = (part for part in node.body if isinstance(part, ast.FunctionDef))
        assert [part.target.id for part in node.body if isinstance(part, ast.AnnAssign)] == names
        assert [argument.arg for argument in init.args.kwonlyargs] == [*names, "received"]
