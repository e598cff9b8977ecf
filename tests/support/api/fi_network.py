# SPDX-License-Identifier: GPL-2.0-only
"""This module has a network of two nodes for tests of `fi`, and reads the requests on its wire from a capture."""

import re
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from uetproto import decode
from uetproto.api import fi
from uetproto.wire.capture.pcap import open_capture
from uetproto.wire.headers.uet_ses import Opcode

REGION = 4096

_REQUEST = re.compile(r"ses\.(request|send|deferrable|rtr)_")


@dataclass
class Pair:
    """Two nodes with an endpoint each; `b` has a region, all of it `memory`."""

    fabric: fi.Fabric
    a: fi.Endpoint
    b: fi.Endpoint
    memory: bytearray
    mr: fi.MemoryRegion

    @property
    def dest(self) -> int:
        """The fi_addr_t that `a` has for `b`."""
        return self.a.av.insert(self.b.address)

    @property
    def src(self) -> int:
        """The fi_addr_t that `b` has for `a`."""
        return self.b.av.insert(self.a.address)


def pair(
    path: Path | None = None, order: fi.Order = fi.Order.NONE, ep_type: fi.EpType = fi.EpType.RDM,
    mr: dict[str, Any] | None = None, cq: dict[str, Any] | None = None, mr_mode: fi.MrMode = fi.MrMode.NONE,
    **fabric: Any,
) -> Pair:  # fmt: skip
    network = fi.Fabric(capture=None if path is None else str(path), **fabric)
    options: dict[str, Any] = {"msg_order": order, "ep_type": ep_type, "mr_mode": mr_mode, **(cq or {})}
    a, b = network.endpoint("a", **options), network.endpoint("b", **options)
    memory = bytearray(range(256)) * (REGION // 256)
    return Pair(network, a, b, memory, b.domain.mr_reg(memory, **(mr or {})))


@dataclass
class Sent:
    """This record is one request on the wire."""

    pds: str
    """Form of the PDS header: rud_req, rod_req, rudi_req or uud_req."""
    form: str
    """Form of the SES header: std, medium or small."""
    opcode: Opcode
    values: dict[str, Any]
    """Fields of the SES request header."""
    extension: dict[str, Any]
    payload: bytes


def requests(path: Path, source: str = "10.0.0.1") -> list[Sent]:
    """Return the SES requests of a node, in the order of the capture, which must be closed."""
    sent = []
    with open_capture(path) as records:
        for record in records:
            packet = decode(record.data)
            assert packet.error is None, packet
            if packet["ipv4"]["src"] != int(ip_address(source)):
                continue
            request = [layer for layer in packet.layers if _REQUEST.match(layer.form)]
            if not request:
                continue
            pds = next(layer.form for layer in packet.layers if layer.form.startswith("pds."))
            extension = [layer for layer in packet.layers if layer.form.startswith("ses.ext")]
            sent.append(
                Sent(
                    pds.split(".")[1],
                    request[0].form.split("_")[1].split(".")[0],
                    Opcode(request[0].values["opcode"]),
                    dict(request[0].values),
                    dict(extension[0].values) if extension else {},
                    bytes(packet.payload),
                )
            )
    return sent
