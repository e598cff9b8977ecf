# SPDX-License-Identifier: GPL-2.0-only
"""This module is a driver for `uetproto conform --as target`: it does once what the environment says, over a real link.

It is also an example of such a program: what the test needs comes in variables UETPROTO_…, and the exit status says how
the operation ended, 0 for success.
"""

import os
import sys
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from uetproto.api import fi, verbs
from uetproto.errors import LocalError
from uetproto.live import Interface

_PATIENCE = "60 s"


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Do what the environment says, and return the exit status: 0, or 1 if the operation ended in an error."""
    told = {name.removeprefix("UETPROTO_").lower(): value for name, value in environment.items()}
    if "action" not in told:
        print("UETPROTO_ACTION is missing: uetproto conform --as target --driver … runs this program", file=sys.stderr)
        return 2
    try:
        return _over_roce(told) if "qpn" in told else _over_uet(told)
    except LocalError as error:  # such as a port that another program has
        print(error, file=sys.stderr)
        return 1


def _over_uet(told: Mapping[str, str]) -> int:
    action, mode, number = told["action"], told["mode"], {name: int(told[name]) for name in _NUMBERS}
    how = fi.Encapsulation(
        udp=bool(told["port"]), crc=told["crc"] == "on", udp_port=int(told["port"] or 4793),
        ip_protocol=int(told["protocol"] or 253),
    )  # fmt: skip
    ses = fi.SesConfig(
        payload_mtu=number["mtu"], large_send=action if action in ("deferrable", "rendezvous") else "plain",
        deferrable_threshold=0, rendezvous_threshold=0,
    )  # fmt: skip
    fabric = fi.Fabric(live=Interface(told["peer"]), how=how, ses=ses)
    order = fi.Order.WAW if mode == "rod" else fi.Order.NONE
    domain = fabric.domain("local", fi.Job(number["job"]))
    kind = fi.EpType.DGRAM if mode == "uud" else fi.EpType.RDM
    endpoint = domain.endpoint(kind, msg_order=order, initiator_id=number["initiator"])
    endpoint.bind(domain.av_open())
    endpoint.bind(domain.cq_open())
    endpoint.enable()
    target = ip_address(told["target"])
    to = fi.Address(
        fa=int(target), ip_version=target.version, pid_on_fep=number["pid"], start_index=number["index"],
        initiator_id=number["initiator"], fep_cap=fi.FepCap.HPC if mode == "rudi" else None,
    )  # fmt: skip
    endpoint.av.insert(to)
    data = Path(told["file"]).read_bytes() if told["file"] else b""
    place, into = (number["addr"], number["key"]), bytearray(number["length"])
    operand = number["operand"].to_bytes(8, sys.byteorder)
    if action == "write":
        endpoint.write(data, to, *place)
    elif action == "read":
        endpoint.read(into, to, *place)
    elif action in ("send", "deferrable", "rendezvous"):
        endpoint.send(data, to)
    elif action == "tagged":
        endpoint.tsend(data, to, number["tag"])
    elif action == "atomic":
        endpoint.atomic(operand, to, *place, fi.Datatype.UINT64, fi.Op.SUM)
    elif action == "fetch":
        endpoint.fetch_atomic(operand, into, to, *place, fi.Datatype.UINT64, fi.Op.SUM)
    else:
        return 77  # the status that says: this peer cannot do it
    entries = endpoint.cq.sread(timeout=_PATIENCE)
    ended = bool(entries) and entries[0].ok
    if ended and action == "read":
        Path(told["to"]).write_bytes(into)
    if ended and action == "fetch":  # most significant byte first, as on the wire
        Path(told["to"]).write_bytes(int.from_bytes(into, sys.byteorder).to_bytes(8, "big"))
    fabric.close(drain=ended)
    if not ended:
        print(entries[0] if entries else f"nothing ended within {_PATIENCE}", file=sys.stderr)
    return 0 if ended else 1


def _over_roce(told: Mapping[str, str]) -> int:
    """Do an act over RoCEv2, on a queue pair with the numbers that were told."""
    number = {name: int(told[name]) for name in _ROCE_NUMBERS if told[name]}
    config = verbs.RoceConfig(path_mtu=number["mtu"], udp_port=number["port"])
    network = verbs.Network(live=Interface(told["peer"]), config=config)
    pd, cq = network.device("local").alloc_pd(), network.device("local").create_cq()
    qp = pd.create_qp(verbs.QpType[told["mode"].upper()], cq, qp_num=number["peer_qpn"])
    # A stack that chooses the number itself tells it: Path(told["pair"]).write_text(f"{qp.qp_num} {first_psn}\n")
    connect(qp, told["target"], number)
    mr = post(qp, told["action"], told["target"], number, Path(told["file"]).read_bytes() if told["file"] else b"")
    entries = cq.wait(1, _PATIENCE)
    ended = bool(entries) and entries[0].ok
    if ended and told["action"] in ("read", "fetch", "cas"):
        Path(told["to"]).write_bytes(result(mr, told["action"]))
    network.close(drain=ended)
    if not ended:
        print(entries[0] if entries else f"nothing ended within {_PATIENCE}", file=sys.stderr)
    return 0 if ended else 1


def connect(qp: verbs.QP, target: str, number: Mapping[str, int]) -> None:
    """Bring up a queue pair that is connected to that of the target."""
    if qp.qp_type is verbs.QpType.UD:
        qp.modify(verbs.QpState.INIT, pkey_index=0, port=1, qkey=number["q_key"])
        qp.modify(verbs.QpState.RTR)
        qp.modify(verbs.QpState.RTS, sq_psn=number["peer_psn"])
        return
    more = {name: number[name] for name in ("timeout", "retry_cnt", "rnr_retry")}
    verbs.connect_to(
        qp, target, dest_qpn=number["qpn"], sq_psn=number["peer_psn"], rq_psn=number["psn"], path_mtu=number["mtu"],
        **more if qp.qp_type is verbs.QpType.RC else {},
    )  # fmt: skip


def post(qp: verbs.QP, action: str, target: str, number: Mapping[str, int], data: bytes) -> verbs.MR:
    """Post the work of an act, and return its memory."""
    size = number["length"]
    atomic = {"fetch": number.get("operand", 0), "cas": number.get("compare", 0)}
    mr = qp.pd.reg_mr(bytearray(data) if data and action not in atomic else bytearray(size))
    fields: dict[str, Any] = {}
    if not action.startswith("send"):
        fields |= {"remote_addr": number["addr"], "rkey": number["key"]}
    if action.endswith("_imm"):
        fields["imm_data"] = number["imm"]
    if action == "send_inv":
        fields["invalidate_rkey"] = number["imm"]
    if action in atomic:
        fields |= {"compare_add": atomic[action], "swap": number["operand"] if action == "cas" else 0}
    if qp.qp_type is verbs.QpType.UD:
        fields |= {"ah": qp.pd.create_ah(target), "remote_qpn": number["qpn"], "remote_qkey": number["q_key"]}
    qp.post_send(_OPCODES[action], mr, **fields)
    return mr


def result(mr: verbs.MR, action: str) -> bytes:
    """Return what was read; of an atomic the value most significant byte first, as on the wire."""
    data = bytes(mr.read(0, mr.length))
    return data if action == "read" else int.from_bytes(data, sys.byteorder).to_bytes(8, "big")


_OPCODES = {
    "write": verbs.Opcode.RDMA_WRITE, "write_imm": verbs.Opcode.RDMA_WRITE_WITH_IMM, "send": verbs.Opcode.SEND,
    "send_imm": verbs.Opcode.SEND_WITH_IMM, "send_inv": verbs.Opcode.SEND_WITH_INV, "read": verbs.Opcode.RDMA_READ,
    "fetch": verbs.Opcode.ATOMIC_FETCH_AND_ADD, "cas": verbs.Opcode.ATOMIC_CMP_AND_SWP,
}  # fmt: skip
_ROCE_NUMBERS = (
    "length", "port", "mtu", "key", "addr", "qpn", "psn", "peer_qpn", "peer_psn", "q_key", "imm", "operand", "compare",
    "timeout", "retry_cnt", "rnr_retry",
)  # fmt: skip
_NUMBERS = ("length", "key", "addr", "job", "pid", "index", "initiator", "mtu", "operand", "tag")


if __name__ == "__main__":
    sys.exit(main())
