# SPDX-License-Identifier: GPL-2.0-only
"""This module makes the joined table, a row for each packet, from the columns of a piece of a capture.

The values of each form are put at the places of their packets with array operations. Where a packet has several headers
of a form, as in a tunnel, the innermost counts.
"""

from collections.abc import Callable
from functools import cache
from ipaddress import IPv6Address
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from uetproto.columns import NO_TIME, Columns
from uetproto.tables.names import OWN, TableColumn
from uetproto.wire.filter_names import BY_NAME, FilterName, Given
from uetproto.wire.words.summary import address
from uetproto.wire.words.text import code

Array = NDArray[Any]
_LOWER = {
    "infiniband.bth.opcode": ("bth", "opcode"), "infiniband.bth.psn": ("bth", "psn"),
    "infiniband.bth.destqp": ("bth", "destqp"), "eth.type": ("ethernet", "type"), "vlan.id": ("vlan", "vid"),
    "ip.ttl": ("ipv4", "ttl"), "ip.len": ("ipv4", "total_length"), "ip.proto": ("ipv4", "protocol"),
    "udp.srcport": ("udp", "sport"), "udp.dstport": ("udp", "dport"), "udp.length": ("udp", "length"),
}  # fmt: skip
"""Form and field of names that are read from columns, beside those over forms."""
_PROTOCOLS = (
    ("ethernet", "Ethernet"), ("ipv4", "IPv4"), ("ipv6", "IPv6"), ("udp", "UDP"), ("pfc", "PFC"), ("bth", "RoCE"),
    ("lrh", "InfiniBand"),
)  # fmt: skip
"""Forms, and the protocol of a packet that has such a header; later ones win."""


class Placed(NamedTuple):
    """Values that stand at the places of their packets, and which packets have one."""

    values: Array
    there: NDArray[np.bool_]


class JoinedPiece:
    """This class gives the columns of the joined table of one piece of a capture."""

    def __init__(self, columns: Columns, first: int, names: list[str], flows: dict[tuple[str, str], int]) -> None:
        """`first` is the index of the first packet, `names` has the names of interfaces, and `flows` the numbers of
        flows, which grow from piece to piece."""
        self._columns, self._first, self._interfaces, self._flows = columns, first, names, flows
        self._size = columns.packets
        self._places: dict[str, Array] = {}

    def column(self, pa: Any, column: TableColumn) -> Any:
        """Return a column as an array of Arrow."""
        if column.name in OWN:
            return _OWN[column.name](self, pa)
        placed = self._field(column.name)
        if column.codes is not None:
            codes = pa.array(placed.values.astype(np.uint8), mask=~placed.there)
            return pa.array(_texts(column.codes)).take(codes)
        return pa.array(placed.values, mask=~placed.there)

    # Places -----------------------------------------------------------------------------------------------------------

    def _at(self, form: str) -> Array:
        """Return the places of the packets that have a form."""
        found = self._places.get(form)
        if found is None:
            found = self._places[form] = self._columns[form]["index"].astype(np.intp) - self._first
        return found

    def _empty(self, dtype: Any) -> Placed:
        return Placed(np.zeros(self._size, dtype), np.zeros(self._size, bool))

    def _lower(self, form: str, field: str, dtype: Any) -> Placed:
        found = self._empty(dtype)
        if form in self._columns:
            at = self._at(form)
            found.values[at], found.there[at] = self._columns[form][field], True
        return found

    def _field(self, name: str) -> Placed:
        """Return the values of a name that is in reach of columns."""
        if name in _LOWER:
            return self._lower(*_LOWER[name], np.uint32)
        row = BY_NAME[name.removeprefix("uetp.")]
        found = self._empty(bool if row.kind == "bool" else np.uint64 if row.kind == "uint64" else np.uint32)
        for header in row.forms:
            if header.name in self._columns:
                rows, at = self._columns[header.name], self._at(header.name)
                values: Array = rows[row.field_of(header)]
                if row.plus:
                    values = (values.astype(np.int64) + row.sign * rows[row.plus].astype(np.int64)) & 0xFFFFFFFF
                elif row.kind == "bool":
                    values = values != 0
                unset, codes = row.absent
                if unset in rows:
                    keep = ~np.isin(rows[unset], list(codes))
                    values, at = values[keep], at[keep]
                found.values[at], found.there[at] = values, True
        return found

    # Columns with names of their own ----------------------------------------------------------------------------------

    def _number(self, pa: Any) -> Any:
        return pa.array(np.arange(self._first + 1, self._first + 1 + self._size, dtype=np.uint32))

    def _time(self, pa: Any) -> Any:
        times = self._columns.times
        return pa.array(times, mask=times == NO_TIME).cast(pa.timestamp("ns")).cast(pa.timestamp("ns", tz="UTC"))

    def _interface(self, pa: Any) -> Any:
        numbers = self._columns.interfaces
        most = int(numbers.max(initial=0)) + 1
        names = [self._interfaces[n] if n < len(self._interfaces) else "" for n in range(most)]
        return pa.array([name or str(n) for n, name in enumerate(names)]).take(pa.array(numbers))

    def _length(self, pa: Any) -> Any:
        return pa.array(self._columns.lengths)

    def _protocol(self, pa: Any) -> Any:
        texts = ["", *(name for _, name in _PROTOCOLS), "UET"]
        codes = np.zeros(self._size, np.uint8)
        for number, (form, _) in enumerate(_PROTOCOLS, 1):
            if form in self._columns:
                codes[self._at(form)] = number
        for form in self._columns:
            if form.startswith(("pds.", "tss")):
                codes[self._at(form)] = len(texts) - 1
        return pa.array(texts).take(pa.array(codes))

    def _form(self, pa: Any) -> Any:
        texts = [""]
        codes = np.zeros(self._size, np.uint8)
        for form in self._columns:
            if form.startswith(("tss", "bth")) or (form.startswith("pds.") and not form.startswith(_STATES)):
                codes[self._at(form)] = len(texts)
                texts.append(form)
        return pa.array(texts).take(pa.array(codes, mask=codes == 0))

    def _ends(self) -> list[tuple[list[str], Array]]:
        """Return for senders and receivers the addresses as text, and their numbers in this list for each packet."""
        found = []
        for name in ("src", "dst"):
            texts, codes = [""], np.zeros(self._size, np.int64)
            for form, bits in (("ethernet", 48), ("ipv4", 32), ("ipv6", 128)):
                if form not in self._columns:
                    continue
                values, at = self._columns[form][name], self._at(form)
                if bits == 128:
                    values = np.ascontiguousarray(values).view([("high", ">u8"), ("low", ">u8")])
                unique, inverse = np.unique(values, return_inverse=True)
                codes[at] = inverse + len(texts)
                texts += [_text(one, bits) for one in unique.tolist()]
            found.append((texts, codes))
        return found

    @property
    def ends(self) -> list[tuple[list[str], Array]]:
        if not hasattr(self, "_known_ends"):
            self._known_ends = self._ends()
        return self._known_ends

    def _src(self, pa: Any) -> Any:
        texts, codes = self.ends[0]
        return pa.array(texts).take(pa.array(codes))

    def _dst(self, pa: Any) -> Any:
        texts, codes = self.ends[1]
        return pa.array(texts).take(pa.array(codes))

    def _flow(self, pa: Any) -> Any:
        (sources, a), (targets, b) = self.ends
        pairs, first, inverse = np.unique(a * len(targets) + b, return_index=True, return_inverse=True)
        numbers = np.zeros(len(pairs), np.uint32)
        for place in np.argsort(first):  # flows are numbered by their first packets
            source, target = divmod(int(pairs[place]), len(targets))
            numbers[place] = self._flows.setdefault((sources[source], targets[target]), len(self._flows))
        return pa.array(numbers[inverse])

    def _sport(self, pa: Any) -> Any:
        found = self._lower("udp", "sport", np.uint16)
        return pa.array(found.values, mask=~found.there)

    def _dport(self, pa: Any) -> Any:
        found = self._lower("udp", "dport", np.uint16)
        return pa.array(found.values, mask=~found.there)

    def _class(self, pa: Any, name: str) -> Any:
        found = self._lower("ipv4", name, np.uint8)
        if "ipv6" in self._columns:
            at = self._at("ipv6")
            found.values[at], found.there[at] = self._columns["ipv6"][name], True
        return pa.array(found.values, mask=~found.there)

    def _dscp(self, pa: Any) -> Any:
        return self._class(pa, "dscp")

    def _ecn(self, pa: Any) -> Any:
        return self._class(pa, "ecn")


_STATES = ("pds.req_cc_state", "pds.cc_state", "pds.ccx_state", "pds.nack_ccx_state")
"""Beginnings of forms that follow a PDS header."""
_OWN: dict[str, Callable[[JoinedPiece, Any], Any]] = {
    "number": JoinedPiece._number, "time": JoinedPiece._time, "interface": JoinedPiece._interface,
    "length": JoinedPiece._length, "protocol": JoinedPiece._protocol, "src": JoinedPiece._src,
    "dst": JoinedPiece._dst, "sport": JoinedPiece._sport, "dport": JoinedPiece._dport, "dscp": JoinedPiece._dscp,
    "ecn": JoinedPiece._ecn, "flow": JoinedPiece._flow, "form": JoinedPiece._form,
}  # fmt: skip


def in_reach(name: str) -> bool:
    """Return whether columns have the values of a name; otherwise packets are read one by one."""
    if name in _OWN or name in _LOWER:
        return True
    row: FilterName | None = BY_NAME.get(name.removeprefix("uetp.")) if name.startswith("uetp.") else None
    return row is not None and row.given in (Given.FIELD, Given.SUM)


@cache
def _texts(codes: Any) -> list[str]:
    """Return the names of all codes of 8 bits."""
    return [code(codes, value) for value in range(256)]


def _text(value: Any, bits: int) -> str:
    """Return an address as text; of IPv6 the value is two halves."""
    return str(IPv6Address(value[0] << 64 | value[1])) if bits == 128 else address(value, bits)
