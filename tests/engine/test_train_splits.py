# SPDX-License-Identifier: GPL-2.0-only
"""The conditions under which a packet goes by itself: each of them applies where the table says so, and is told."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import uetproto
from uetproto.api import fi, verbs
from uetproto.cli.main import cli
from uetproto.emulator.run.play import run
from uetproto.emulator.scenario.settings import load
from uetproto.engine.pds import trains as uet
from uetproto.engine.pds.states import State
from uetproto.engine.pds.trains import ReceivedTrain
from uetproto.engine.roce import trains as roce
from uetproto.engine.roce.contract import Access, QpState
from uetproto.engine.roce.qp import BEHAVIOUR
from uetproto.engine.roce.trains import ReceivedWrite
from uetproto.engine.ses.transfer import MessageState
from uetproto.engine.train_splits import ACK, SOURCE, TARGET, Asked, Split, TrainTally, summed, words
from uetproto.errors import LocalError

SIZE = 200 * 1024
Change = Callable[[Any], object]


def test_each_condition_is_asked_somewhere() -> None:
    root = Path(uetproto.__file__).parent
    files = [file for file in root.rglob("*.py") if file.name != "train_splits.py"]
    asked = set(re.findall(r"\bSplit\.([A-Z_]+)", "".join(file.read_text("utf-8") for file in files)))
    assert asked == set(Split.__members__)
    assert [split.number for split in Split] == list(range(len(Split)))
    assert {at for split in Split for at in split.asked} == set(Asked)


# A write that is half done -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def writing() -> Any:
    """Return a PDC in the middle of a long write with its peer, and what takes the train that arrives."""
    held: list[ReceivedTrain] = []
    with pytest.MonkeyPatch.context() as patch:
        make = ReceivedTrain.__init__
        patch.setattr(ReceivedTrain, "__init__", lambda run, *given: (make(run, *given), held.append(run))[0])
        with fi.Fabric(ses=fi.SesConfig(payload_mtu=1024), rate="100 Gb/s", trains="on") as fabric:
            a, b = fabric.endpoint("a"), fabric.endpoint("b")
            a.write(bytes(SIZE), b.address, 0, b.domain.mr_reg(bytearray(SIZE)).key)
            fabric.run(10_000_000)
            (pdc,) = fabric.nodes["a"].fep.pds.pdcs.values()
            run = held[-1]
            index = (run._pdc.rx.cack + 1 - run._psn) & 0xFFFFFFFF
            assert uet._split_at_source(pdc, 16) is run._split_at(index, True) is None
            assert uet.quiet_acks(pdc.owner, pdc.local_id, pdc.tx.una, False) is not None
            yield pdc, run, index


OF_PDC: list[tuple[Split, str, Any]] = [
    (Split.EDGE, "open_message", None),
    (Split.LOCKED, "locks", {1}),
    (Split.NOT_ESTABLISHED, "state", State.QUIESCE),
    (Split.CLEAR_DUE, "clear_owed", True),
    (Split.CLEAR_DUE, "clear_at", 5),
]


@pytest.mark.parametrize(("split", "name", "value"), OF_PDC)
def test_at_the_source_of_a_write(writing: Any, split: Split, name: str, value: Any) -> None:
    pdc, _, _ = writing
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pdc, name, value)
        assert uet._split_at_source(pdc, 16) is split
    assert SOURCE in split.asked


def test_at_the_source_of_a_write_with_the_window_and_the_psns(writing: Any) -> None:
    pdc, _, _ = writing
    assert uet._split_at_source(pdc, 1) is Split.ROOM
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pdc.tx, "start", (pdc.tx.next - (1 << 31) + (1 << 23)) & 0xFFFFFFFF)
        assert uet._split_at_source(pdc, 16) is Split.LAST_PSNS
    message = pdc.open_message
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message.transfer, "state", MessageState.DEFERRED)
        assert message.next_run(16) is Split.MESSAGE
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(message.segments, "plan", replace(message.segments.plan, memory=object()))
        assert message.next_run(16) is Split.MEMORY


ARRIVING: list[tuple[Split, Callable[[ReceivedTrain], Any], str, Any]] = [
    (Split.NOT_ESTABLISHED, lambda run: run._pdc, "state", State.QUIESCE),
    (Split.GAP, lambda run: run._pdc.rx, "gap_closed", True),
    (Split.GAP, lambda run: run._pdc.rx, "max_rcvd", 5),
    (Split.RESPONSES, lambda run: run._pdc, "close_psn", 5),
    (Split.CLEAR_AHEAD, lambda run: run, "_clear", None),
    (Split.BUSY, lambda run: run._owner, "_waiting", [1]),
    (Split.MESSAGE, lambda run: run._owner.user.target, "fault", True),
    (Split.GAP, lambda run: run._followed, "_offset", 0),
]


@pytest.mark.parametrize(("split", "part", "name", "value"), ARRIVING)
def test_at_the_target_of_a_write(writing: Any, split: Split, part: Any, name: str, value: Any) -> None:
    _, run, index = writing
    if name == "_clear":
        value = (run._pdc.rx.cack + 1) & 0xFFFFFFFF
    before = run._owner.tally.target[split.number]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part(run), name, value)
        assert not run.renew(index, True)
    assert run._owner.tally.target[split.number] == before + 1
    assert TARGET in split.asked


def test_at_the_target_of_a_write_with_limits(writing: Any) -> None:
    _, run, index = writing
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run._pdc, "config", replace(run._pdc.config, max_gtd_del=1))
        assert run._split_at(index, True) is Split.LIMITS


def split_of_ack(asked: Any, owner: Any, receiver: int, psn: int, polled: bool = False) -> Split | None:
    """Return which condition of an ACK is counted when it arrives, or None if it is quiet."""
    before = list(owner.tally.ack)
    if asked.quiet_acks(owner, receiver, psn, polled) is not None:
        return None
    (found,) = (at for at, now in zip(Split, owner.tally.ack, strict=True) if now != before[at.number])
    return found


def test_when_an_ack_arrives(writing: Any) -> None:
    pdc, _, _ = writing
    owner = pdc.owner

    def split(receiver: int = pdc.local_id, psn: int = pdc.tx.una) -> Split | None:
        return split_of_ack(uet, owner, receiver, psn)

    assert split(receiver=0) is Split.NOT_ESTABLISHED
    assert split(psn=pdc.tx.next) is Split.ACK_SAYS_MORE
    for where, name, value, wanted in (
        (owner, "_waiting", [1], Split.BUSY),
        (pdc, "config", replace(pdc.config, inferred_loss="sack"), Split.LOSS_INFERRED),
        (pdc.tx, "sacked", 1, Split.RETRANSMISSION),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, value)
            assert split() is wanted
        assert ACK in wanted.asked
    assert split() is None


# RoCE ----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sending() -> Any:
    """Return a queue pair in the middle of a long WRITE, and what takes the train that arrives."""
    held: list[ReceivedWrite] = []
    with pytest.MonkeyPatch.context() as patch:
        make = ReceivedWrite.__init__
        patch.setattr(ReceivedWrite, "__init__", lambda run, *given: (make(run, *given), held.append(run))[0])
        with verbs.Network(rate="100 Gb/s", trains="on", config=verbs.RoceConfig(path_mtu=1024)) as net:
            pds = [net.device(name).alloc_pd() for name in net.devices]
            pairs = [pd.create_qp(verbs.QpType.RC, pd.device.create_cq()) for pd in pds]
            verbs.connect(*pairs)
            source, target = (pd.reg_mr(bytearray(SIZE)) for pd in pds)
            pairs[0].post_send(verbs.Opcode.RDMA_WRITE, source, remote_addr=target.addr, rkey=target.rkey)
            net.run(8_000_000)
            requester = pairs[0]._qp.requester
            run = held[-1]
            index = run._sender.responder.epsn - run._psn
            (wqe,) = requester.wqes.values()
            assert roce._split_at_source(requester, wqe, 16) is run._split_at(index, True) is None
            yield requester, wqe, run, index


SENDING: list[tuple[Split, Callable[[Any, Any], Any], str, Any]] = [
    (Split.CONGESTION_CONTROL, lambda requester, wqe: requester.qp, "rate", object()),
    (Split.EDGE, lambda requester, wqe: requester, "cursor", None),
    (Split.RETRANSMISSION, lambda requester, wqe: requester, "next", None),
    (Split.MEMORY, lambda requester, wqe: wqe, "bytes", b""),
]


@pytest.mark.parametrize(("split", "part", "name", "value"), SENDING)
def test_at_the_source_of_a_roce_write(sending: Any, split: Split, part: Any, name: str, value: Any) -> None:
    requester, wqe, _, _ = sending
    if value is None:
        value = wqe.first if name == "cursor" else requester.next + 1
    before, out = requester.qp.hca.tally.source[split.number], list[Any]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part(requester, wqe), name, value)
        assert roce.send_train(requester, wqe, out, 16) == 0
    assert requester.qp.hca.tally.source[split.number] == before + 1
    assert not out
    assert roce._split_at_source(requester, wqe, 1) is Split.ROOM


TAKING: list[tuple[Split, Callable[[ReceivedWrite], Any], str, Any]] = [
    (Split.NOT_ESTABLISHED, lambda run: run._qp, "state", QpState.RTR),
    (Split.GAP, lambda run: run._sender.responder, "epsn", 5),
    (Split.MESSAGE, lambda run: run._qp.attributes, "access_flags", Access(0)),
    (Split.MESSAGE, lambda run: run._sender.responder, "_region", None),
    (Split.BUSY, lambda run: run._hca, "_active", {1: None}),
]


@pytest.mark.parametrize(("split", "part", "name", "value"), TAKING)
def test_at_the_target_of_a_roce_write(sending: Any, split: Split, part: Any, name: str, value: Any) -> None:
    _, _, run, index = sending
    before = run._hca.tally.target[split.number]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part(run), name, value)
        if name in ("state", "access_flags"):
            patch.setattr(run._qp, "established", False)
            patch.setattr(run._qp, "changes", run._qp.changes + 1)
        assert not run.renew(index, True)
    assert run._hca.tally.target[split.number] == before + 1


def test_when_an_ack_of_a_roce_write_arrives(sending: Any) -> None:
    """Another P_Key than that of the queue pair is another connection."""
    requester, wqe, _, _ = sending
    qp = requester.qp
    whole = qp.p_key << 24 | qp.number

    def split(receiver: int = whole, psn: int = requester.una, polled: bool = False) -> Split | None:
        return split_of_ack(roce, qp.hca, receiver, (psn & 0xFFFFFF) << 8, polled)

    assert qp.hca.quiet_acks(whole, (requester.una & 0xFFFFFF) << 8, False) == wqe.end - 2 - requester.una << 8
    assert split(receiver=0xFFFF << 24 | 0x99) is split(receiver=0x1FFF << 24 | qp.number) is Split.NOT_ESTABLISHED
    assert split(polled=True) is Split.BUSY
    assert split(psn=requester.next) is split(psn=requester.una - 1) is Split.ACK_SAYS_MORE
    for where, name, value, wanted in (
        (qp, "behaviour", BEHAVIOUR[QpState.ERR], Split.NOT_ESTABLISHED),
        (qp.hca, "_active", {}, Split.BUSY),
        (wqe, "end", requester.una + 1, Split.ACK_SAYS_MORE),
        (requester, "cursor", requester.una, Split.RETRANSMISSION),
        (requester, "resume_at", 5, Split.RETRANSMISSION),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(where, name, value)
            assert split() is wanted
        assert ACK in wanted.asked
    assert split() is None


# What a run tells ----------------------------------------------------------------------------------------------------


def test_a_run_tells_how_many_trains_it_had_and_why_not_more() -> None:
    done = CliRunner().invoke(cli, ["run", "gradient-1024", "--trains", "on", "--json"])
    assert json.loads(done.output)["trains"] == {
        "rank0": {"made": 0, "source": {"edge": 1, "not established": 11}}, "rank2": {"made": 0},
    }  # fmt: skip
    told = CliRunner().invoke(cli, ["run", "gradient-1024", "--trains", "on"]).output
    assert "  rank0: 0 trains; by themselves: source (edge 1, not established 11)\n" in told
    assert json.loads(CliRunner().invoke(cli, ["run", "gradient-1024", "--json"]).output)["trains"] == {}


@pytest.mark.parametrize(
    ("command", "node", "told"),
    [
        ("generate bench --packets 600 -o {}", "10.0.0.1", "trains; by themselves: source (room "),
        ("collective all_reduce --ranks 3 --bytes 600KiB", "rank2", "trains; by themselves: source (room "),
        ("fabric permutation --hosts 2 --cc off --flow-size 400KiB", "h1", "trains; by themselves: source ("),
        ("collective all_reduce --ranks 3 --bytes 4KiB --algorithm sharp", "rank2",
         "trains; messages of SHARP are not counted"),
    ],
)  # fmt: skip
def test_other_commands_tell_it_of_all_nodes_together(command: str, node: str, told: str, tmp_path: Path) -> None:
    typed = command.format(tmp_path / "it.pcap").split()
    output = CliRunner().invoke(cli, [*typed, "--trains", "on"]).output
    assert re.search(rf"(?m)^  [\d,]+ {re.escape(told)}", output)
    on, auto = (
        json.loads(CliRunner().invoke(cli, [*typed, "--json", "--trains", how]).output).get("trains")
        for how in ("on", "auto")
    )
    assert node in on
    assert auto is None
    assert sum(one["made"] for one in on.values()) or "SHARP" in told


def test_the_sum_of_tallies() -> None:
    one, other = TrainTally(), TrainTally()
    one.made, one.source[Split.EDGE.number] = 2, 3
    other.made, other.source[Split.EDGE.number], other.ack[Split.BUSY.number] = 1, 4, 1000
    total = summed([one.as_dict(), other.as_dict()])
    assert total == {"made": 3, "source": {"edge": 7}, "ack": {"busy": 1000}}
    assert words(total) == "3 trains; by themselves: source (edge 7), ack (busy 1,000)"
    one.network = other.network = Split.MODE
    assert summed([one.as_dict(), other.as_dict()])["network"] == "mode"
    assert "network" not in summed([one.as_dict(), {"made": 1}])
    assert words({"made": 1}) == "1 train"
    assert words({"made": 0, "network": "mode"}) == "0 trains; mode"


@pytest.mark.parametrize(
    ("split", "given"),
    [
        (Split.OBJECTS, {"wire": "objects"}),
        (Split.CONGESTION_CONTROL, {"cc": "nscc"}),
        (Split.ACK_PER_PACKET, {"pds": fi.PdsConfig(enb_ack_per_pkt=True)}),
        (Split.CLEARS, {"pds": fi.PdsConfig(clear_at="message")}),
        (Split.PROBES, {"pds": fi.PdsConfig(inferred_loss="probe")}),
    ],
)
def test_a_network_without_trains_says_why(split: Split, given: Any) -> None:
    with pytest.raises(LocalError, match="trains: on, but nothing") as told:
        fi.Fabric(trains="on", **given)
    assert split.when in str(told.value)


def test_a_script_says_so(tmp_path: Path) -> None:
    file = tmp_path / "input"
    file.write_bytes(bytes(10_000))
    with pytest.raises(LocalError) as told:
        run(load("ladder-L02", (f"run.input={file}", "run.ses=real", "fabric.trains=on")))
    assert Split.SCRIPT.when in str(told.value)
