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

from uetproto.api import fi
from uetproto.live import Interface

_PATIENCE = "60 s"


def main(environment: Mapping[str, str] = os.environ) -> int:
    """Do what the environment says, and return the exit status: 0, or 1 if the operation ended in an error."""
    told = {name.removeprefix("UETPROTO_").lower(): value for name, value in environment.items()}
    if "action" not in told:
        print("UETPROTO_ACTION is missing: uetproto conform --as target --driver … runs this program", file=sys.stderr)
        return 2
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


_NUMBERS = ("length", "key", "addr", "job", "pid", "index", "initiator", "mtu", "operand", "tag")


if __name__ == "__main__":
    sys.exit(main())
