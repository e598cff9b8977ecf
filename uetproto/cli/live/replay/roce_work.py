# SPDX-License-Identifier: GPL-2.0-only
"""This module does the operations of a RoCEv2 capture anew towards a live peer, with queue pairs of its own."""

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any

from uetproto.api import verbs
from uetproto.cli.live.initiator import RoceInitiator
from uetproto.cli.live.peer_bench import hand_pairs
from uetproto.cli.live.replay.work import OPEN, ReplayedOperation, WorkReplay
from uetproto.cli.live.tested_pairs import AskedPairs
from uetproto.conform.replay.differences import AnswerDifference, data_words
from uetproto.conform.replay.roce_frames import ReplayPlaces, settings_of
from uetproto.conform.replay.roce_messages import ATOMIC_SIZE, RoceMessage, RoceMessageReader
from uetproto.conform.replay.roce_side import CapturedPair
from uetproto.conform.roce.packets import RoceFacts
from uetproto.conform.roce.pairs import PairSource
from uetproto.conform.roce.peer_file import KnownRocePeer
from uetproto.engine.roce.qp import bring_up_steps
from uetproto.wire.headers.roce import Operation

_MOST_WR = 4 * OPEN
_Operation = ReplayedOperation[RoceMessage, verbs.WorkCompletion]


class RoceWorkReplay(WorkReplay[RoceMessage, verbs.WorkCompletion]):
    """This class does the operations of a side over RoCEv2."""

    def __init__(
        self, one: RoceInitiator, reader: RoceMessageReader, ignored: frozenset[str], places: ReplayPlaces
    ) -> None:  # fmt: skip
        """Take the operations to the peer of `one`, with queue pairs that are connected to those of `places`."""
        super().__init__(one, reader, ignored)
        self.places = places
        self._pd = one.pd
        self._cq = one.pd.device.create_cq(_MOST_WR)
        self._ah = one.pd.create_ah(one.peer)
        self._qps = {pair: self._connected(one, pair) for pair in places.pairs}
        self._posted: dict[int, _Operation] = {}
        self._count = 0

    def _connected(self, one: RoceInitiator, pair: CapturedPair) -> verbs.QP:
        """Return a queue pair of this end for one of the capture."""
        now = self.places.pairs[pair]
        kind = verbs.QpType[pair.kind.upper()]
        qp = self._pd.create_qp(kind, self._cq, qp_num=now.number)
        wanted: Mapping[str, Any] = {
            "pkey_index": 0, "port": 1, "av": verbs.AddressVector(one.peer_address), "path_mtu": one.path_mtu,
            "access_flags": verbs.ALL, "qkey": now.q_key, "dest_qpn": now.theirs, "sq_psn": now.psn,
            "rq_psn": now.first, **settings_of(pair, one.path_mtu),
        }  # fmt: skip
        for state, values in bring_up_steps(kind, self._pd.device.config, wanted):
            qp.modify(state, **values)
        return qp

    def begin(self, operation: _Operation) -> bool:
        message, values, qp = operation.message, operation.message.values, self._qps[operation.message.pair]
        fields: dict[str, Any] = {}
        if message.pair.kind == "ud":
            now = self.places.pairs[message.pair]
            q_key = now.q_key if values["q_key"] == message.pair.q_key and now.q_key else values["q_key"]
            fields |= {"ah": self._ah, "remote_qpn": now.theirs, "remote_qkey": q_key}
        if "va" in values:
            fields["rkey"], fields["remote_addr"] = self.places.of(values["r_key"], values["va"])
        if "immdt" in values:
            fields["imm_data"] = values["immdt"]
        opcode = _opcode_of(message)
        if opcode is verbs.Opcode.SEND_WITH_INV:
            fields["invalidate_rkey"], _ = self.places.of(values["r_key"], 0)
        if message.operation is Operation.COMPARE_SWAP:
            fields |= {"compare_add": values["cmpdt"], "swap": values["swapdt"]}
        elif message.operation is Operation.FETCH_ADD:
            fields["compare_add"] = values["swapdt"]
        operation.into = self._pd.reg_mr(bytearray(message.length) if message.fetches else message.data)
        self._count += 1
        flags = verbs.SendFlags.SIGNALED | (verbs.SendFlags.SOLICITED if values.get("se") else verbs.SendFlags(0))
        try:
            qp.post_send(opcode, operation.into, wr_id=self._count, send_flags=flags, **fields)
        except BaseException:
            operation.into.dereg()
            raise
        self._posted[self._count] = operation
        return True

    def collect(self) -> None:
        for entry in self._cq.poll(len(self._cq)) if len(self._cq) else ():
            operation = None if entry.receive else self._posted.pop(entry.wr_id, None)
            if operation is not None:
                operation.end = entry

    def judged(self, message: RoceMessage, operation: _Operation, end: verbs.WorkCompletion) -> Any:
        now = bytes(operation.into) if message.fetches else b""
        operation.into.dereg()
        if message.status is None:
            return "unanswered"
        status = end.status.name
        if status != message.status:
            what = "missing" if end.status in (verbs.Status.RETRY_EXC_ERR, verbs.Status.WR_FLUSH_ERR) else "differs"
            return AnswerDifference(what, message.number, message.words, {"status": (message.status, status)})
        if message.operation in (Operation.COMPARE_SWAP, Operation.FETCH_ADD):
            now = now[:ATOMIC_SIZE][::-1]  # a number in the order of this host
        if message.fetches and end.ok and now != bytes(message.answer):
            fields = {"payload": data_words(bytes(message.answer), now)}
            return AnswerDifference("differs", message.number, message.words, fields)
        return "same"


def _opcode_of(message: RoceMessage) -> verbs.Opcode:
    """Return the opcode of a work request for a message."""
    operation = message.operation
    whole = {
        Operation.RDMA_READ_REQUEST: verbs.Opcode.RDMA_READ,
        Operation.COMPARE_SWAP: verbs.Opcode.ATOMIC_CMP_AND_SWP, Operation.FETCH_ADD: verbs.Opcode.ATOMIC_FETCH_AND_ADD,
    }  # fmt: skip
    if operation in whole:
        return whole[operation]
    name = "RDMA_WRITE" if operation.name.startswith("RDMA_WRITE") else "SEND"
    behind = {"IMMEDIATE": "_WITH_IMM", "INVALIDATE": "_WITH_INV"}.get(operation.name.rpartition("_")[2], "")
    return verbs.Opcode[name + behind]


def roce_facts(one: RoceInitiator, known: KnownRocePeer | None) -> RoceFacts:
    """Return what is known of the peer of an initiator, with the source of its queue pairs: its rendezvous, PEER.toml,
    or options."""
    pairs: PairSource = hand_pairs(one.options, known) if one.rendezvous is None else AskedPairs(one.rendezvous)
    version = ip_address(one.peer).version
    local = int(ip_address(one.local))
    return RoceFacts(
        address=one.peer_address, local=local, ip_version=version, path_mtu=one.path_mtu, pairs=pairs
    )  # fmt: skip
