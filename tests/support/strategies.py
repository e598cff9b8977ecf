# SPDX-License-Identifier: GPL-2.0-only
"""This module makes random values, stacks and frames, all derived from the tables and `NEXT`.

Plain functions over `random.Random` are for seeded loops, which are some hundred times faster than Hypothesis; what
shrinks is in `uetproto.testing`, but for values that need only fit their bits, at the end. *Legal* means here: what
`only` and `NEXT` allow, lengths that fit the payload; in `uetproto.testing` it means what an audit finds nothing in.
"""

from collections.abc import Mapping
from random import Random

from hypothesis import strategies as st

from uetproto.testing import frames
from uetproto.wire.codec import codec_of
from uetproto.wire.fields import Field, Header
from uetproto.wire.forms import FIRST, FORMS, IP_PROTOCOL, UDP_PORT, UET_FORMS, Candidates, Next, matches, rows_after
from uetproto.wire.headers.ethernet import EtherType, IpProtocol
from uetproto.wire.headers.uet_tss import ENTROPY, ICV_SIZE
from uetproto.wire.implied import implied_payload
from uetproto.wire.stack import TRIMMED_DSCP, Layer, Packet, Trailer, encode

ENCAPSULATIONS = ("udp", "native")
IP_VERSIONS = (4, 6)
LENGTHS = ("payload_length", "request_length", "eager_length")  # what a payload can be measured by


# Values of one header -------------------------------------------------------------------------------------------------


def random_value(field: Field, rng: Random, *, legal: bool = True) -> int:
    """Return a value that fits `field`: with `legal` one of `only`; often a border, a named code or a small number."""
    if legal and field.only:
        return rng.choice(field.only)
    kind = rng.randrange(8)
    if kind == 0:
        return rng.choice((field.low, field.high))
    if kind == 1:
        return rng.choice((0, 1, *((-1,) if field.signed else ())))
    if kind < 5 and field.values is not None:
        return rng.choice([int(code) for code in field.values])
    return rng.getrandbits(field.bits) + field.low


def random_values(header: Header, rng: Random, *, legal: bool = True) -> dict[str, int]:
    """Return a value for every field of `header`, in wire order."""
    return {field.name: random_value(field, rng, legal=legal) for field in header.fields}


def random_header(header: Header, rng: Random) -> bytes:
    """Return any bytes of the size of `header`; every second time those of legal values."""
    if rng.getrandbits(1):
        return rng.randbytes(header.size)
    return codec_of(header).encode(random_values(header, rng))


# Stacks of UET headers ------------------------------------------------------------------------------------------------


def random_stack(rng: Random, first: Candidates = FIRST, *, max_length: int = 256) -> list[Layer]:
    """UET headers from one of `first` on, each followed by what `NEXT` says; offsets count from the first.

    Every candidate is as likely as any other, not every value. No length field says more than `max_length`.
    """
    layers: list[Layer] = []
    todo = [first]
    offset = 0
    while todo:
        header, values = _one_of(todo.pop(), rng, max_length)
        layers.append(Layer(header.name, values, offset))
        offset += header.size
        following = (_candidates(row, values) for row in reversed(rows_after(header)))
        todo += [candidates for candidates in following if candidates]
    return layers


def _one_of(candidates: Candidates, rng: Random, max_length: int) -> tuple[Header, dict[str, int]]:
    """One of `candidates`, and values by which it is the first of them that matches."""
    header = rng.choice(candidates)
    while True:
        values = random_values(header, rng)
        for name in LENGTHS:
            if name in values:
                values[name] = rng.choice((0, 1, 4, max_length, rng.randint(0, max_length)))
        for row in rows_after(header):
            _follow(row, header, values, rng)
        word = int.from_bytes(codec_of(header).encode(values)[:2], "big")
        if next(h for h in candidates if matches(h, word)) is header:
            return header, values


def _follow(row: Next, header: Header, values: dict[str, int], rng: Random) -> None:
    """Set the field that says what follows: always to a value that is not reserved, often to one that has a header."""
    if row.by is None or (row.otherwise is not None and rng.getrandbits(1)):
        return
    only = header[row.by].only
    choices = [value for value in row.then if not only or value in only]
    if choices:
        values[row.by] = int(rng.choice(choices))


def _candidates(row: Next, values: Mapping[str, int]) -> Candidates:
    candidates = row.otherwise if row.by is None else row.then.get(values[row.by], row.otherwise)
    assert candidates is not None, f"{row.by} {values[row.by or '']} is reserved"
    return candidates


# Frames around them ---------------------------------------------------------------------------------------------------


def random_packet(
    rng: Random,
    *,
    encapsulation: str | None = None,
    version: int | None = None,
    crc: bool | None = None,
    tags: int | None = None,
    extensions: bool | None = None,
    max_length: int = 256,
    stack: list[Layer] | None = None,
) -> Packet:
    """A legal frame as layers, payload and trailer, to be encoded with `fill=True`.

    What is None is drawn: `encapsulation` udp or native, IP `version` 4 or 6, whether there is a `crc`, 0 to 2 VLAN
    `tags`, `extensions` (IPv4 options or an IPv6 extension header). `stack` is what follows UDP or the entropy
    header. The payload is as long as the headers imply; behind a security header it is opaque and ends with an ICV.
    """
    encapsulation = encapsulation or rng.choice(ENCAPSULATIONS)
    version = version or rng.choice(IP_VERSIONS)
    crc = bool(rng.getrandbits(1)) if crc is None else crc
    tags = rng.choice((0, 0, 1, 2)) if tags is None else tags
    extensions = rng.randrange(4) == 0 if extensions is None else extensions
    stack = random_stack(rng, max_length=max_length) if stack is None else stack

    layers = lower_layers(rng, encapsulation, version, tags, extensions)
    layers += stack
    at = 0
    for index, layer in enumerate(layers):
        layers[index] = layer._replace(offset=at)
        at += layer.size

    trailer = Trailer("crc32c", 0) if crc else None
    if stack[-1].form.startswith("tss"):
        size = rng.randint(0, max_length)
        trailer = Trailer("icv", rng.getrandbits(8 * ICV_SIZE))
    else:
        implied = implied_payload(layers)
        size = rng.randint(0, max_length) if implied is None else implied
    return Packet(layers, rng.randbytes(size), trailer)


def random_frame(
    rng: Random,
    *,
    encapsulation: str | None = None,
    version: int | None = None,
    crc: bool | None = None,
    tags: int | None = None,
    extensions: bool | None = None,
    max_length: int = 256,
) -> bytes:
    """Return the bytes of a `random_packet`: lengths, checksums and CRC are right."""
    packet = random_packet(
        rng,
        encapsulation=encapsulation,
        version=version,
        crc=crc,
        tags=tags,
        extensions=extensions,
        max_length=max_length,
    )
    return encode(packet, fill=True)


def lower_layers(rng: Random, encapsulation: str, version: int, tags: int = 0, extensions: bool = False) -> list[Layer]:
    """Return the layers from Ethernet to UDP or the entropy header, with lengths and checksums not filled and offsets
    0."""
    ip_type = EtherType.IPV4 if version == 4 else EtherType.IPV6
    types = [int(rng.choice((EtherType.VLAN, EtherType.QINQ))) for _ in range(tags)] + [int(ip_type)]
    layers = [Layer("ethernet", {"dst": rng.getrandbits(48), "src": rng.getrandbits(48), "type": types[0]})]
    layers += [Layer("vlan", random_values(FORMS["vlan"], rng) | {"type": following}) for following in types[1:]]

    protocol = int(IpProtocol.UDP) if encapsulation == "udp" else IP_PROTOCOL
    dscp = rng.choice([value for value in range(64) if value not in TRIMMED_DSCP])
    if version == 4:
        fixed = {"rsvd": 0, "df": 1, "mf": 0, "fragment_offset": 0, "protocol": protocol}
        layers.append(Layer("ipv4", random_values(FORMS["ipv4"], rng) | {"dscp": dscp} | fixed))
        if extensions:
            layers.append(Layer("ipv4.options", {"raw": b"\x01" * (4 * rng.randint(1, 10))}))
    else:
        extension = int(rng.choice((IpProtocol.HOP_BY_HOP, IpProtocol.DESTINATION)))
        fixed = {"next_header": extension if extensions else protocol}
        layers.append(Layer("ipv6", random_values(FORMS["ipv6"], rng) | {"dscp": dscp} | fixed))
        if extensions:
            layers.append(Layer("ipv6.ext", {"raw": bytes((protocol, 0, 1, 4, 0, 0, 0, 0))}))  # one PadN option
    if encapsulation == "udp":
        layers.append(Layer("udp", random_values(FORMS["udp"], rng) | {"dport": UDP_PORT}))
    else:
        layers.append(Layer("entropy", random_values(ENTROPY, rng)))
    return layers


# Damage ---------------------------------------------------------------------------------------------------------------


def mutate(data: bytes, rng: Random, *, start: int = 0) -> bytes:
    """Return `data` with one to four accidents behind `start`: bits flipped, bytes set, cut, inserted, doubled,
    appended."""
    damaged = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        if len(damaged) <= start:
            damaged += rng.randbytes(1)
        at = rng.randrange(start, len(damaged))
        kind = rng.randrange(8)
        if kind < 3:
            damaged[at] ^= 1 << rng.randrange(8)
        elif kind == 3:
            damaged[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.getrandbits(8)))
        elif kind == 4:
            del damaged[at:]
        elif kind == 5:
            del damaged[at : at + rng.randint(1, 8)]
        elif kind == 6:
            damaged[at:at] = damaged[at : at + rng.randint(1, 16)]
        else:
            damaged += rng.randbytes(rng.randint(1, 16))
    return bytes(damaged)


# Hypothesis -----------------------------------------------------------------------------------------------------------

uet_headers = st.sampled_from(list(UET_FORMS.values()))
headers = st.sampled_from(list(FORMS.values()))


def values_of(header: Header) -> st.SearchStrategy[dict[str, int]]:
    """Return a strategy for a value for every field of `header` that fits its bits, in wire order."""
    return st.fixed_dictionaries({field.name: _fits(field) for field in header.fields})


def _fits(field: Field) -> st.SearchStrategy[int]:
    numbers = st.integers(field.low, field.high)
    return numbers if field.values is None else st.sampled_from([int(code) for code in field.values]) | numbers


def bytes_of(header: Header) -> st.SearchStrategy[bytes]:
    """Return a strategy for any bytes of the size of `header`."""
    return st.binary(min_size=header.size, max_size=header.size)


@st.composite
def damaged_frames(draw: st.DrawFn) -> bytes:
    """Draw a legal frame with accidents anywhere in it."""
    return mutate(draw(frames()), draw(st.randoms(use_true_random=False)))
