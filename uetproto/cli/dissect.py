# SPDX-License-Identifier: GPL-2.0-only
"""This module has the command `uetproto dissect`: it prints the packets of a capture, as lines of JSON or as text."""

import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from enum import IntFlag
from functools import cache
from itertools import islice

import click

from uetproto import Layer, LocalError, Packet, Trailer
from uetproto.analysis.decoding import Decoding, read_keys
from uetproto.cli.captures import (
    LATER,
    decoding_options,
    file_of,
    filter_option,
    keys_option,
    report_closed,
    report_damage,
    seen_packets,
    wanted_packets,
)
from uetproto.cli.main import EXIT_STATUS, FAULT
from uetproto.cli.tables.chosen_fields import ChosenFields, names_of
from uetproto.cli.terminal import Paint, painter, printable, width
from uetproto.filters.display_filter import DisplayFilter
from uetproto.wire.capture.pcap import CaptureReader, Record, open_capture
from uetproto.wire.fields import Field, Header, Origin
from uetproto.wire.forms import FORMS, ROCE_FORMS
from uetproto.wire.headers.sharp import RANKS, ranks_of
from uetproto.wire.headers.uet_pds import CONTROLS, CpPayload, NackCode
from uetproto.wire.serial import add32
from uetproto.wire.words.roce import syndrome
from uetproto.wire.words.sharp import children_of
from uetproto.wire.words.summary import (
    Values,
    address,
    code,
    count,
    duration,
    from_to,
    octets,
    ranges,
    sack_base,
    sacked,
    stamp,
    summary,
    tunnel_words,
)
from uetproto.wire.words.text import numbered

# For programs ---------------------------------------------------------------------------------------------------------


def as_json(record: Record, packet: Packet, file: str | None = None) -> str:
    """Return the JSON object of a packet (interfaces.md §3) as one line. If `file` is given, the object includes this
    name."""
    error = packet.error
    return _PACKET % (
        record.index,
        record.index + 1,
        record.time_ns,
        record.length,
        len(record.data),
        record.interface,
        ", ".join([_layer(form) % (offset, *_numbers(values)) for form, values, offset in packet.layers]),
        packet.payload_offset,
        len(packet.payload),
        _trailer(packet.trailer) if packet.trailer else "null",
        ", ".join([f'"{note}"' for note in packet.notes]),
        _FAULT % (error.kind, error.offset, json.dumps(error.reason)) if error else "null",
        f', "vcrc": {_trailer(packet.vcrc)}' if packet.vcrc else "",
        f', "file": {json.dumps(file)}' if file is not None else "",
    )


# Nearly all values are numbers, so a text template is enough, and four times as fast as `json.dumps`.
_PACKET = (
    '{"index": %d, "number": %d, "time_ns": %d, "length": %d, "captured": %d, "interface": %d, "layers": [%s], '
    '"payload": {"offset": %d, "length": %d}, "trailer": %s, "notes": [%s], "error": %s%s%s}\n'
)
_FAULT = '{"kind": "%s", "offset": %d, "reason": %s}'


def _trailer(trailer: Trailer) -> str:
    verdict = "null" if trailer.ok is None else "true" if trailer.ok else "false"
    return f'{{"kind": "{trailer.kind}", "value": {trailer.value}, "ok": {verdict}}}'


@cache
def _layer(form: str) -> str:
    header = FORMS.get(form)
    fields = ", ".join(f'"{name}": %d' for name in header.names) if header else '"raw": "%s"'
    return f'{{"form": "{form}", "offset": %d, "fields": {{{fields}}}}}'


def _numbers(values: Values) -> Iterable[int | str]:
    """Return the values of the fields in wire order. A layer whose fields are not known has one value: its bytes in
    hex."""
    return (values["raw"].hex(),) if "raw" in values else values.values()


# For people: fields ---------------------------------------------------------------------------------------------------

_PSN = frozenset({"psn", "cack_psn", "nack_psn", "original_request_psn"})
_HEX = frozenset({
    "checksum", "identification", "flow_label", "addr", "memory_key", "read_memory_key", "match_bits", "header_data",
    "pkt_id", "nack_pkt_id", "probe_opaque", "initiator_restart_token", "target_restart_token", "sender_token",
    "receiver_token", "compare_value", "swap_value", "semantic_control", "flags", "cc_flags", "ack_cc_state",
    "ack_ccx_state", "nack_ccx_state1", "nack_ccx_state2", "sack_bitmap", "buffer_offset", "read_offset", "nack_code",
    "vendor_code", "p_key", "q_key", "r_key", "va", "syndrome", "swapdt", "cmpdt", "origremdt", "immdt", "flowlabel",
    "children", "qkey", "pkey", "am_key", "job_key", "tid",
})  # fmt: skip


def _ctl_payload(values: Values) -> str:
    row, value = CONTROLS.get(values["ctl_type"]), values["ctl_payload"]
    if row is None or not row.label or (row.payload is CpPayload.MESSAGE_ID and not value):
        return ""
    if row.payload is CpPayload.CREDIT:
        return octets((value & row.payload_mask) * 256)
    return f"{row.label} {value}"


def _nack_payload(values: Values) -> str:
    if values["nack_code"] == NackCode.ROD_OOO:
        return f"expected PSN {values['nack_payload']}"
    return f"start PSN {values['nack_payload']}" if values["nack_code"] == NackCode.NEW_START_PSN else ""


def _semantic_control(values: Values) -> str:
    bits = values["semantic_control"]
    return ", ".join(name for bit, name in ((1, "ctrl_cacheable"), (2, "cpu_coherent")) if bits & bit)


# What a field means beyond its number (pds.md §2.1, wire.md §3)
_DERIVED: dict[str, Callable[[Values], str]] = {
    "ihl": lambda v: octets(v["ihl"] * 4),
    "clear_psn_offset": lambda v: f"CLEAR_PSN {add32(v['psn'], v['clear_psn_offset'])}",
    "psn_offset": lambda v: f"Start_PSN {add32(v['psn'], -v['psn_offset'])}",
    "pdc_info": lambda v: "use_rsv_pdc" if v["pdc_info"] & 8 else "",
    "ack_psn_offset": lambda v: f"ACK_PSN {add32(v['cack_psn'], v['ack_psn_offset'])}",
    "mpr": lambda v: f"{v['mpr'] * 128} PSNs",
    "sack_psn_offset": lambda v: f"SACK base {sack_base(v)}",
    "sack_bitmap": lambda v: f"received {ranges(sacked(v))}" if v["sack_bitmap"] else "",
    "credit_target": lambda v: octets(v["credit_target"] * 256),
    "credit": lambda v: octets(v["credit"] * 256),
    "rcvd_bytes": lambda v: octets(v["rcvd_bytes"] * 256),
    "service_time": lambda v: duration(v["service_time"] * 128),
    "ctl_payload": _ctl_payload,
    "nack_payload": _nack_payload,
    "semantic_control": _semantic_control,
    "syndrome": lambda v: syndrome(v["syndrome"]),
    "children": lambda v: ", ".join(map(str, children_of(v["children"]))) or "none",
}


@cache
def _writer(form: str, field: Field) -> Callable[[int], str]:
    name, bits, names = field.name, field.bits, field.values
    if form in ("ethernet", "ipv4", "ipv6", "grh") and name in ("src", "dst", "sgid", "dgid"):
        return lambda value: address(value, bits)
    if bits == 128 and name in ("gid", "mgid", "rgid"):
        return lambda value: address(value, bits)
    digits = bits // 4
    hexadecimal = name in _HEX or (bits == 16 and name in ("type", "protocol"))
    if names is not None and issubclass(names, IntFlag):
        return lambda value: " ".join(filter(None, (f"0x{value:0{digits}x}", field.bits_of(value))))
    if names is not None:
        known = frozenset(names)
        number = f"0x{{:0{digits}x}}" if hexadecimal else "{}"
        return lambda value: number.format(value) + (f" {code(names, value)}" if value in known else "")
    if hexadecimal:
        return lambda value: f"0x{value:0{digits}x}" if digits <= 8 else f"0x{value:x}"
    if name in _PSN:
        return lambda value: f"{value} (0x{value:x})"
    return str


def fields_of(layer: Layer) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each field of a layer as text. Reserved fields that are zero are left out."""
    form, values, _ = layer
    if form == RANKS:
        yield "ranks", ", ".join(map(str, ranks_of(values["raw"])))
        return
    if form not in FORMS:
        yield "raw", values["raw"].hex(" ", -4)
        return
    for field in FORMS[form].fields:
        name = field.name
        value = values[name]
        if name.startswith("rsvd") and not value:
            continue
        text = _writer(form, field)(value)
        if name in _DERIVED and field.values is None and (meaning := _DERIVED[name](values)):
            text += f" → {meaning}"
        if field.origin is not None:
            text += f" [{field.origin.value}]"
        yield name, text


# For people: packets --------------------------------------------------------------------------------------------------

_SHOWN = 32  # bytes of payload that are shown
_YEAR = 365 * 86_400 * 1_000_000_000  # ns; a younger capture was made in virtual time
_NOTES = {
    "trimmed": "trimmed: a switch removed the end",
    "truncated": "truncated: the capture did not keep the end",
    "sealed": "sealed: unreadable without its key",
    "padding": "padding: bytes follow the IP packet",
    "fragment": "fragment: a part of an IP packet",
    "crc-suspect": "crc-suspect: a payload MTU and 4 bytes, perhaps a wrong CRC32C; see --crc on",
}
_OWN = ("pds", "ses", "tss", "entropy", "sharp", "mcast")
_TRAILER_SIZE = {"crc32c": 4, "icrc": 4, "icv": 16, "vcrc": 2}


def as_text(
    record: Record, packet: Packet, start_ns: int, interface: str, columns: int, paint: Paint, remark: str = ""
) -> list[str]:
    """Return the lines of text that show a packet. `start_ns` is the time of the first packet, and `interface` is a
    name or empty. `remark` says whether and how a sealed packet was opened; it is empty for other packets."""
    bad = packet.error is not None and packet.error.kind == "malformed"
    bad = bad or (packet.trailer is not None and packet.trailer.ok is False)
    head = f"{numbered(record.index)}  {stamp(record.time_ns - start_ns)}  {from_to(packet)}"
    lines = [f"{paint(head.rstrip(), 'bold')}  {paint(summary(packet), 'alarm' if bad else 'bold')}"]
    lines.append(paint("     " + " · ".join(_facts(record, packet, interface)), "dim"))
    for layer in packet.layers:
        header = FORMS.get(layer.form)
        title = _title(header) if header else "raw, no table"
        style = "cyan" if layer.form.startswith(_OWN) or layer.form in ROCE_FORMS else ""
        lines.append(f"{layer.offset:5}  {paint(f'{layer.form:<22}', style)} {paint(title, 'dim')}")
        lines += _wrapped(layer, columns, paint)
    offset = packet.payload_offset
    if packet.payload:
        lines.append(f"{offset:5}  {'payload':<22} {octets(len(packet.payload))}")
        lines += _hexdump(packet.payload, paint)
    offset += len(packet.payload)
    if packet.pad:
        lines.append(f"{offset:5}  {'pad':<22} {packet.pad.hex()}")
        offset += len(packet.pad)
    for trailer in (packet.trailer, packet.vcrc):
        if trailer is None:
            continue
        kind, value, ok = trailer
        size, verdict = _TRAILER_SIZE[kind], ""
        if ok is not None:
            verdict = paint("ok", "green") if ok else paint("BAD", "alarm")
        lines.append(f"{offset:5}  {kind:<22} 0x{value:0{size * 2}x} {verdict}".rstrip())
        offset += size
    if packet.raw:
        what = "padding" if packet.error is None and "padding" in packet.notes else "not decoded"
        lines.append(f"{len(record.data) - len(packet.raw):5}  {'raw':<22} {octets(len(packet.raw))}, {what}")
        if packet.raw.strip(b"\0"):
            lines += _hexdump(packet.raw, paint)
    for note in packet.notes:
        text = f"sealed: {remark}" if remark and note == "sealed" else _NOTES.get(note, note)
        lines.append(paint(f"       {text}", "yellow"))
    if remark and "sealed" not in packet.notes:
        lines.append(paint(f"       {remark}", "green"))
    if packet.error is not None:
        kind, at, reason = packet.error
        if kind == "unknown":
            kind = "not decoded" if any(layer.form in ROCE_FORMS for layer in packet.layers) else "not UET"
        text = f"       {kind}, byte {at}: {reason}"
        lines.append(paint(text, "alarm" if kind == "malformed" else "yellow"))
    lines.append("")
    return lines


def _title(header: Header) -> str:
    """Return the title of a header, with a mark if its layout is not published."""
    return header.title if header.origin is Origin.PUBLISHED else f"{header.title} [{header.origin.value}]"


def _facts(record: Record, packet: Packet, interface: str) -> Iterator[str]:
    captured = len(record.data)
    if captured < record.length:
        yield f"{captured} of {record.length} bytes captured"
    else:
        yield octets(captured)
    if interface:
        yield printable(interface)
    if through := tunnel_words(packet):
        yield f"in {through}"
    ns = record.time_ns
    if ns >= _YEAR:
        try:
            yield f"{datetime.fromtimestamp(ns // 1_000_000_000, UTC):%Y-%m-%d %H:%M:%S}.{ns % 1_000_000_000:09d} UTC"
        except (ValueError, OverflowError, OSError):  # a year that the calendar of the machine does not have
            yield f"{ns} ns"
    if record.comment:
        yield printable(record.comment)


def _wrapped(layer: Layer, columns: int, paint: Paint) -> list[str]:
    lines, line, used = [], "", 0
    for name, value in fields_of(layer):
        size = len(name) + 3 + len(value)
        if line and used + 3 + size > columns - 9:
            lines.append(f"         {line}")
            line = ""
        used = used + 3 + size if line else size
        line += f"{'   ' if line else ''}{paint(f'{name} =', 'dim')} {value}"
    return [*lines, f"         {line}"]


def _hexdump(data: bytes, paint: Paint) -> list[str]:
    lines = []
    for at in range(0, min(len(data), _SHOWN), 16):
        part = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"         {at:04x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {paint(text, 'dim')}")
    if len(data) > _SHOWN:
        lines.append(paint(f"         … {len(data) - _SHOWN} more", "dim"))
    return lines


# The command ----------------------------------------------------------------------------------------------------------


@click.command(
    short_help="Show the packets of a capture, bit by bit.",
    epilog=f"""\b
Example:
  uetproto dissect capture.pcapng --packet 1
  uetproto dissect aggregation.pcapng --sharp
  uetproto dissect capture.pcapng --filter 'uetp.psn in {{7..9}} and not uetp.retx == 1'
  uetproto dissect capture.pcapng --fields number,src,uetp.psn,uetp.opcode,uetp.acked_in
  uetproto dissect sealed.pcapng --keys keys.toml
  tcpdump -w - udp port 4793 | uetproto dissect --json -

{EXIT_STATUS}
Damage and malformed packets are faults, with --keys also sealed packets that do not open. Packets of other
protocols and wrong CRCs are no faults.""",
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line and packet.")
@click.option("--count", "limit", type=click.IntRange(0), metavar="N", help="Stop after N packets.")
@click.option("--packet", "only", type=click.IntRange(1), metavar="N", help="Show only packet #N of each file, from 1.")
@click.option("--sharp", is_flag=True, help="Look for SHARP messages in payloads, which no header announces.")
@click.option("--mcast", is_flag=True, help="Decode immediates as those of multicast broadcast and all-gather.")
@filter_option("Show only packets")
@click.option("--fields", "fields_text", metavar="NAME,…", help="Show only these fields, by their names in filters.")
@click.option("--names", is_flag=True, help="With --json: also values by their names in filters, codes by name.")
@decoding_options
@keys_option()
@click.pass_context
def command(
    ctx: click.Context,
    files: tuple[str, ...],
    as_json: bool,
    limit: int | None,
    only: int | None,
    wanted: DisplayFilter | None,
    fields_text: str | None,
    names: bool,
    decoding: Decoding,
    keys_file: str | None,
) -> None:
    """Show every header of every packet of captures.

    FILE is a pcap or pcapng, also compressed; - is standard input. With --json each line is an object whose
    fields are numbers. If several files are given, each object names its "file".
    Text and --packet number packets from 1, as Wireshark does; "index" of --json counts from 0.
    """
    if wanted is not None and only is not None:
        raise LocalError(
            "--packet", "with --filter", "one of both; frame.number counts packets from 1", id="conflicting-arguments"
        )
    if names and (not as_json or fields_text is not None):
        raise LocalError("--names", "goes with --json, and not with --fields", id="conflicting-arguments")
    keys = read_keys(keys_file)
    only = None if only is None else only - 1
    decoding = decoding._replace(keys=keys)
    if fields_text is not None:
        if only is not None:
            raise LocalError(
                "--packet", "with --fields", "one of both; --filter 'frame.number == 5' chooses a packet",
                id="conflicting-arguments"
            )  # fmt: skip
        if _show_fields(ChosenFields(fields_text), files, decoding, wanted, limit, as_json):
            ctx.exit(FAULT)
        return
    show = _json_writer(len(files) > 1, names) if as_json else _text_writer(len(files) > 1)
    left = limit
    faults = 0
    late = wanted is not None and wanted.late
    for file in files:
        with ExitStack() as owned, open_capture(path := file_of(file, owned, LATER) if late else file) as reader:
            start_ns = seen = 0
            if left != 0:
                decoding = decoding._replace(reader=reader)
                pairs = decoding.packets(file, reader if only is None else _around(reader, only))
                for record, packet, is_wanted in wanted_packets(wanted, path, decoding, pairs):
                    if not seen:
                        start_ns = record.time_ns
                    seen = record.index + 1
                    if not is_wanted or (only is not None and record.index < only):
                        continue
                    packet, remark = decoding.opened(record, packet)
                    faults += packet.error is not None and packet.error.kind == "malformed"
                    show(file, reader, record, packet, start_ns, remark)
                    if left is not None:
                        left -= 1
                    if left == 0 or only is not None:
                        break
            faults += report_damage(file, reader)
            if only is not None and left != 0 and seen <= only:
                raise LocalError(
                    f"{file}: there is no packet {numbered(only)}; it has {count(seen, 'packet')}", id="unknown-packet"
                )
    if keys is not None:
        faults += report_closed(keys.complaints)
    if faults:
        ctx.exit(FAULT)


def _show_fields(
    chosen: ChosenFields, files: tuple[str, ...], decoding: Decoding, wanted: DisplayFilter | None, limit: int | None,
    as_json_: bool,
) -> bool:  # fmt: skip
    """Print a line for each packet with the values of chosen fields. Return whether a capture is damaged."""
    damaged = False
    left = limit
    late = chosen.late or (wanted is not None and wanted.late)
    for file in files:
        with ExitStack() as owned, open_capture(path := file_of(file, owned, LATER) if late else file) as reader:
            reading = decoding._replace(reader=reader)
            pairs = reading.packets(file, reader)
            found = seen_packets(wanted, path, reading, pairs, chosen.analysed, chosen.late)
            for record, _, seen in islice(found, left):
                if as_json_:
                    more = {"file": file} if len(files) > 1 else {}
                    click.echo(json.dumps({"index": record.index, **more, **chosen.values(seen)}))
                else:
                    click.echo(chosen.line(seen))
                left = None if left is None else left - 1
            damaged |= report_damage(file, reader)
    return damaged


def _around(records: Iterable[Record], only: int) -> Iterator[Record]:
    """Yield the first record, the records closely before record `only`, and all records from `only` on. The earlier
    records show whether the flow of record `only` has a CRC."""
    before: deque[Record] = deque(maxlen=_AROUND)
    for record in records:
        if record.index == 0 or record.index >= only:
            yield from before
            before.clear()
            yield record
        else:
            before.append(record)
    yield from before


_AROUND = 1024
_Show = Callable[[str, CaptureReader, Record, Packet, int, str], None]


def _json_writer(several: bool, names: bool) -> _Show:
    write = sys.stdout.write

    def show(file: str, reader: CaptureReader, record: Record, packet: Packet, start_ns: int, remark: str) -> None:
        line = as_json(record, packet, file if several else None)
        write(f'{line.rstrip()[:-1]}, "names": {names_of(packet)}}}\n' if names else line)

    return show


def _text_writer(several: bool) -> _Show:
    write, paint, columns = sys.stdout.write, painter(), width()
    last = ""

    def show(file: str, reader: CaptureReader, record: Record, packet: Packet, start_ns: int, remark: str) -> None:
        nonlocal last
        if several and file != last:
            write(f"{paint(printable(file), 'bold')}\n\n")
            last = file
        name = reader.interfaces[record.interface].name
        write("\n".join(as_text(record, packet, start_ns, name, columns, paint, remark)) + "\n")

    return show
