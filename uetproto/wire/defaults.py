# SPDX-License-Identifier: GPL-2.0-only
"""This module has the rules by which a field that nobody set gets its value from the other fields of its packet.

`RULES` has one function for each such field. A field without a rule is 0, or has the value that identifies its header.
`encode(fill=True)`, the Scapy layers and `UET.build` of the Construct schemas read `RULES`, so that they agree.
`uetproto audit` accepts a packet that is made of defaults. A field that is set stays as it is, even if it is 0. Lengths
below UET, checksums and CRCs have no rule here, because they are computed from the bytes of the packet.
"""

from collections.abc import Callable, Iterable
from functools import cache
from itertools import takewhile
from typing import NamedTuple

from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS, IP_PROTOCOL, ROCE_PORT, UDP_PORT, rows_after
from uetproto.wire.headers import ethernet as eth
from uetproto.wire.headers import roce, tunnels, uet_pds, uet_ses
from uetproto.wire.headers.ethernet import Ecn, EtherType, IpProtocol
from uetproto.wire.headers.uet_pds import CONTROLS
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, Opcode

Value = int | str
"""Number, or text of a Python expression that computes the number when the packet is encoded. The expression may use
`size` (the number of bytes that follow the last UET header), `index` (the function `operator.index`), and variables of
fields (`variable`)."""


class Step(NamedTuple):
    """A step gives a value to one field that nobody set. The expressions of later steps may use this field.

    `layer` is the index of the header in the packet, from the outermost.
    """

    layer: int
    field: str
    value: Value


def variable(layer: int, field: str) -> str:
    """Return the name of the variable that has the value of a field in expressions."""
    return f"h{layer}_{field}"


class Place:
    """A place is one header of a packet, for which a rule computes the value of a field.

    `above` has the forms of the headers behind this one, and `below` has the forms of the headers before it.
    """

    def __init__(self, stack: "_Stack", layer: int) -> None:
        self._stack, self._layer = stack, layer
        self.header = FORMS[stack.forms[layer]]
        self.above: list[str] = [form for form in stack.forms[layer + 1 :] if form in FORMS]
        self.below: tuple[str, ...] = stack.forms[:layer]

    def is_set(self, field: str) -> bool:
        return field in self._stack.present[self._layer]

    def value(self, field: str) -> str:
        """Return an expression for the value of another field of this header."""
        return self._stack.value(self._layer, field)

    def value_of(self, form: str, field: str) -> str:
        """Return an expression for the value of a field of the nearest header `form` behind this one."""
        return self._stack.value(self._stack.forms.index(form, self._layer), field)


Rule = Callable[[Place], Value]


class _Stack:
    def __init__(self, forms: tuple[str, ...], present: tuple[frozenset[str], ...]) -> None:
        self.forms, self.present = forms, present
        self.steps: list[Step] = []
        self._known: set[tuple[int, str]] = set()

    def value(self, layer: int, field: str) -> str:
        if field not in self.present[layer] and (layer, field) not in self._known:
            self._known.add((layer, field))
            rule = RULES.get((self.forms[layer], field))
            value = FORMS[self.forms[layer]][field].default if rule is None else rule(Place(self, layer))
            self.steps.append(Step(layer, field, value))
        return f"index({variable(layer, field)})"


def steps_for(forms: tuple[str, ...], present: tuple[frozenset[str], ...]) -> list[Step]:
    """Return the steps that give a value to every field that nobody set, in an order in which each step can be done.

    `forms` are the headers of a packet, and `present` has the names of the fields that are set in each header. Forms
    without a table, such as options, are left out.
    """
    stack = _Stack(forms, present)
    for layer, form in enumerate(forms):
        for field in FORMS[form].names if form in FORMS else ():
            stack.value(layer, field)
    return stack.steps


# Codes ---------------------------------------------------------------------------------------------------------------


@cache
def code_for(header: Header, by: str, above: tuple[Header, ...]) -> int:
    """Return the value of the field `by` of `header` that announces the headers `above`, which follow.

    If no value of the field announces these headers, return the default of the field.
    """
    rows = [row for row in rows_after(header) if row.by == by]
    ours = {h for row in rows for group in (*row.then.values(), row.otherwise or ()) for h in group}
    wanted = [h for h in above if h in ours]
    field = header[by]
    named = [int(code) for row in rows for code in row.then]
    other = next(code for code in range(field.high + 1) if code not in named)
    for code in (field.default, *named, other):
        following = [row.then.get(code, row.otherwise) for row in rows]
        if None in following or (field.only and code not in field.only):
            continue
        groups = [group for group in following if group]
        if len(groups) == len(wanted) and all(h in group for h, group in zip(wanted, groups, strict=True)):
            return code
    return field.default


def _code(by: str) -> Rule:
    return lambda place: code_for(place.header, by, tuple(FORMS[form] for form in place.above))


def _opcode(place: Place) -> Value:
    """Return the opcode of a request: that of its extensions; else WRITE where there is something to write."""
    code = _code("opcode")(place)
    if uet_pds.UUD_REQ.name in place.below and Opcode.DATAGRAM_SEND in place.header["opcode"].only:
        return Opcode.DATAGRAM_SEND
    if code != Opcode.NO_OP:
        return code
    if place.is_set("request_length") or place.header is uet_ses.REQUEST_STD or _is_rudi(place):
        return Opcode.WRITE
    return f"{Opcode.WRITE:d} if size else {Opcode.NO_OP:d}"


def _is_rudi(place: Place) -> bool:
    return uet_pds.RUDI_REQ.name in place.below


# Below UET -----------------------------------------------------------------------------------------------------------

_ETHERTYPES = {
    "vlan": EtherType.VLAN, "ipv4": EtherType.IPV4, "ipv6": EtherType.IPV6, "grh": EtherType.ROCEV1,
    "pfc": EtherType.MAC_CONTROL, "mpls": EtherType.MPLS,
}  # fmt: skip
_PROTOCOLS = {"udp": IpProtocol.UDP, "entropy": IP_PROTOCOL, "gre": IpProtocol.GRE, "mpls": IpProtocol.MPLS}
_PORTS = {"bth": ROCE_PORT, **{header.name: port for port, header in tunnels.BY_PORT.items()}}
_CARRIED = {header.name: int(code) for code, header in reversed(tunnels.BY_ETHERTYPE.items())}
_DATA = frozenset(header.name for header in (*uet_pds.REQUESTS, uet_pds.RUDI_REQ, uet_pds.UUD_REQ))
_FIRST_ENTROPY = 0xC000


def _by_next(codes: dict[str, int]) -> Rule:
    return lambda place: codes.get(place.above[0], 0) if place.above else 0


def _ecn(place: Place) -> Value:
    return Ecn.ECT0 if _DATA.intersection(place.above) else Ecn.NOT_ECT


def _dport(place: Place) -> Value:
    return _PORTS.get(place.above[0], UDP_PORT) if place.above else 0


def _sport(place: Place) -> Value:
    return (_FIRST_ENTROPY if place.above[0] in _PORTS else UDP_PORT) if place.above else 0


def _carried(place: Place) -> Value:
    return next((_CARRIED.get(form, 0) for form in place.above if not form.startswith("gre.")), 0)


def _gre_part(header: Header) -> Rule:
    return lambda place: int(header.name in takewhile(lambda form: form.startswith("gre."), place.above))


# PDS -----------------------------------------------------------------------------------------------------------------

_WITH_AR = tuple(int(code) for code, row in CONTROLS.items() if row.ar)


def _clear(place: Place) -> Value:
    """Clear everything before the packet; before the PDC's first packet there is nothing to clear (pds.md §9.1)."""
    return f"-1 - {place.value('psn_offset')}" if "psn_offset" in place.header.names else -1


def _sack(place: Place) -> Value:
    """Set the bits up to CACK_PSN (pds.md §8.5)."""
    return f"(1 << max(0, min(64, 1 - {place.value('sack_psn_offset')}))) - 1"


# SES -----------------------------------------------------------------------------------------------------------------

_LATER = (uet_ses.REQUEST_STD, uet_ses.SEND_STD, uet_ses.DEFERRABLE_STD)
_FIRST = (uet_ses.REQUEST_STD_SOM, uet_ses.SEND_STD_SOM, uet_ses.DEFERRABLE_STD_SOM)
_WHOLE = (uet_ses.RTR_STD, *uet_ses.MEDIUM, uet_ses.REQUEST_SMALL)
_CARRIES_NOTHING = tuple(int(code) for code, row in OPCODE_PROFILES.items() if not row.payload)
_RENDEZVOUS, _ATOMICS = uet_ses.EXT_RENDEZVOUS.name, {uet_ses.EXT_ATOMIC.name, uet_ses.EXT_ATOMIC_CAS.name}
_IDEMPOTENT_SAFE = 1 << 63


def _eom_of_first(place: Place) -> Value:
    """End the message where all its bytes are there (ses.md §7.1)."""
    if not place.is_set("request_length") or _ATOMICS.intersection(place.above):
        return 1
    if _RENDEZVOUS in place.above:
        return f"1 if size >= {place.value_of(_RENDEZVOUS, 'eager_length')} else 0"
    return f"1 if size >= {place.value('request_length')} or {place.value('opcode')} in {_CARRIES_NOTHING} else 0"


def _eom_of_later(place: Place) -> Value:
    if not place.is_set("request_length"):
        return 1
    end = f"{place.value('message_offset')} + {place.value('payload_length')}"
    return f"1 if {end} >= {place.value('request_length')} or {place.value('opcode')} == {Opcode.MSG_ERROR:d} else 0"


def _length_of_first(place: Place) -> Value:
    """Count what is there; a message that goes on has another packet of the same size."""
    if place.header is uet_ses.RTR_STD:
        return 0
    if _RENDEZVOUS in place.above:
        return f"max(size, {place.value_of(_RENDEZVOUS, 'eager_length')})"
    return f"size if {place.value('eom')} else 2 * size" if place.is_set("eom") else "size"


def _length_of_later(place: Place) -> Value:
    end, size = f"{place.value('message_offset')} + {place.value('payload_length')}", place.value("payload_length")
    return f"{end} if {place.value('eom')} else {end} + {size}" if place.is_set("eom") else end


def _offset_of_later(place: Place) -> Value:
    """Stand at the end of a message whose length is known, else behind one packet of the same size."""
    size = place.value("payload_length")
    if not place.is_set("request_length"):
        return size
    rest = f"max(0, {place.value('request_length')} - {size})"
    return f"{rest} if {place.value('eom')} else {size}" if place.is_set("eom") else rest


def _end_of_data(place: Place) -> Value:
    names = place.header.names
    offset = f"{place.value('message_offset')} + " if "message_offset" in names else ""
    return offset + place.value("payload_length")


def _message_id(place: Place) -> Value:
    return 0 if uet_pds.UUD_REQ.name in place.below else 1


def _always(value: int) -> Rule:
    return lambda place: value


_LINKS = (eth.ETHERNET, eth.VLAN, eth.SLL, eth.SLL2)
_WITH_PDC = (*uet_pds.REQUESTS, *uet_pds.ACKS, uet_pds.CP, uet_pds.CP_SYN)
_TABLE: tuple[tuple[Iterable[Header], str, Rule], ...] = (
    # headers                              field                      rule
    (FORMS.values(),                       "next_hdr",                _code("next_hdr")),
    (FORMS.values(),                       "cc_type",                 _code("cc_type")),
    ((roce.LRH,),                          "lnh",
        lambda place: code_for(roce.LRH, "lnh", tuple(FORMS[form] for form in place.above[:1]))),
    ((roce.BTH,),                          "opcode",                  _code("opcode")),
    ((roce.GRH,),                          "ipver",                   _always(6)),
    ((roce.GRH,),                          "nxthdr",                  _always(roce.BTH_FOLLOWS)),
    (_LINKS,                               "type",                    _by_next(dict(_ETHERTYPES))),
    ((eth.IPV4,),                          "version",                 _always(4)),
    ((eth.IPV4,),                          "ihl",                     _always(5)),
    ((eth.IPV4,),                          "df",                      _always(1)),
    ((eth.IPV4,),                          "ttl",                     _always(64)),
    ((eth.IPV4,),                          "protocol",                _by_next(dict(_PROTOCOLS))),
    ((eth.IPV6,),                          "version",                 _always(6)),
    ((eth.IPV6,),                          "hop_limit",               _always(64)),
    ((eth.IPV6,),                          "next_header",             _by_next(dict(_PROTOCOLS))),
    ((eth.IPV4, eth.IPV6),                 "ecn",                     _ecn),
    ((eth.UDP,),                           "sport",                   _sport),
    ((eth.UDP,),                           "dport",                   _dport),
    ((tunnels.VXLAN,),                     "i",                       _always(1)),
    ((tunnels.GENEVE, tunnels.GRE),        "protocol",                _carried),
    *(((tunnels.GRE,),                     flag,                      _gre_part(header))
      for flag, header in tunnels.GRE_PARTS.items()),
    ((tunnels.ERSPAN_III,),                "pdu",                     _always(1)),
    ((tunnels.ERSPAN_III,),                "platform_present",
        lambda place: int(place.above[:1] == [tunnels.ERSPAN_PLATFORM.name])),
    ((tunnels.MPLS,),                      "bottom",
        lambda place: int(place.above[:1] != [tunnels.MPLS.name])),
    ((tunnels.MPLS,),                      "ttl",                     _always(64)),
    (uet_pds.REQUESTS,                     "clear_psn_offset",        _clear),
    (_WITH_PDC,                            "spdcid",                  _always(1)),
    ((*_WITH_PDC, *uet_pds.NACKS),         "dpdcid",                  _always(1)),
    ((uet_pds.CP, uet_pds.CP_SYN),         "ar",
        lambda place: f"1 if {place.value('ctl_type')} in {_WITH_AR} else 0"),
    (uet_pds.ACKS,                         "mpr",                     _always(1)),
    (uet_pds.ACKS,                         "sack_bitmap",             _sack),
    (uet_ses.REQUESTS,                     "opcode",                  _opcode),
    (uet_ses.REQUESTS,                     "message_id",              _message_id),
    (uet_ses.REQUESTS,                     "resource_index",          _always(1)),
    (uet_ses.REQUESTS,                     "hd",                      lambda place: int(place.is_set("header_data"))),
    (uet_ses.REQUESTS,                     "memory_key",
        lambda place: _IDEMPOTENT_SAFE if _is_rudi(place) else 0),
    (_WHOLE,                               "som",                     _always(1)),
    (_WHOLE,                               "eom",                     _always(1)),
    (_FIRST,                               "eom",                     _eom_of_first),
    (_LATER,                               "eom",                     _eom_of_later),
    ((*_FIRST, *_WHOLE),                   "request_length",          _length_of_first),
    (_LATER,                               "request_length",          _length_of_later),
    (_LATER,                               "message_offset",          _offset_of_later),
    ((*_LATER, *uet_ses.RESPONSES),        "payload_length",          lambda place: "size"),
    ((uet_ses.EXT_RENDEZVOUS,),            "eager_length",            lambda place: "size"),
    ((uet_ses.EXT_RENDEZVOUS,),            "resource_index",          _always(1)),
    ((uet_ses.EXT_SYNC,),                  "count",                   _always(1)),
    (uet_ses.STANDARD,                     "initiator_restart_token", _always(1)),
    (uet_ses.STANDARD,                     "sender_token",            _always(1)),
    (uet_ses.STANDARD,                     "receiver_token",          _always(1)),
    (uet_ses.RESPONSES[1:],                "opcode",                  _always(uet_ses.ResponseOpcode.RESPONSE_W_DATA)),
    (uet_ses.RESPONSES[1:],                "return_code",             _always(uet_ses.ReturnCode.OK)),
    (uet_ses.RESPONSES,                    "message_id",              _always(1)),
    (uet_ses.RESPONSES,                    "read_request_message_id", _always(1)),
    ((uet_ses.RESPONSE_DATA,),             "modified_length",         _end_of_data),
)  # fmt: skip

RULES: dict[tuple[str, str], Rule] = {
    (header.name, field): rule
    for headers, field, rule in _TABLE
    for header in headers
    if field in header.names and not (header[field].only and len(header[field].only) == 1)
}
"""Maps the names of a header form and of one of its fields to the rule of the field. Fields without a rule are
missing."""
