# SPDX-License-Identifier: GPL-2.0-only
"""Plays a run with trains or without, and tells the first difference of two runs."""

import tomllib
from contextlib import ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

from tests.support.trains.draw import Tables
from uetproto import decode
from uetproto.cli.collective.run import CollectiveCase, PreparedCase
from uetproto.collectives.dtypes import dtype
from uetproto.emulator.run.play import RUNS, kind_of
from uetproto.emulator.run.result import comment_of
from uetproto.emulator.scenario.roce_settings import UET
from uetproto.emulator.scenario.settings import load_text
from uetproto.errors import LocalError
from uetproto.garbage import seldom_collected
from uetproto.wire.capture.pcap import ETHERNET, open_capture, open_writer

Seen = dict[str, Any]
"""All that can be seen of a run, by name, in the order in which it is compared."""


def toml_of(tables: Tables) -> str:
    """Return a scenario as the text of its file."""
    lines: list[str] = []
    for name, section in tables.items():
        if isinstance(section, list):
            for row in section:
                lines += [f"[[{name}]]", *(f"{key} = {_value(value)}" for key, value in row.items()), ""]
        elif section and all(isinstance(value, dict) for value in section.values()):
            for inner, table in section.items():
                lines += [f"[{name}.{inner}]", *(f"{key} = {_value(value)}" for key, value in table.items()), ""]
        else:
            lines += [f"[{name}]", *(f"{key} = {_value(value)}" for key, value in section.items()), ""]
    text = "\n".join(lines)
    assert tomllib.loads(text) == tables
    return text


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def play(tables: Tables, trains: str, folder: Path, check: bool = False) -> Seen:
    """Play a run and return all that can be seen of it. A run that is refused has nothing but the error."""
    file = folder / f"{trains}.pcapng"
    file.unlink(missing_ok=True)
    try:
        return (
            _collective(tables["collective"], trains, file)
            if "collective" in tables
            else _scenario(tables, trains, file)
        )
    except LocalError as error:
        return {"error": str(error)}


def _scenario(tables: Tables, trains: str, file: Path) -> Seen:
    fabric = tables.get("fabric", {}) | {"trains": trains}
    scenario = load_text(toml_of(tables | {"fabric": fabric}))
    with ExitStack() as owned:
        played: Any = RUNS[scenario.run.transport == UET, kind_of(scenario)](scenario, owned, False)
        about = None if scenario.plane is None else scenario.plane.told
        interfaces = [
            (name, ETHERNET, about if tap in scenario.nodes else None)
            for name, tap in zip(scenario.interfaces, scenario.taps, strict=True)
        ]
        comment = comment_of(scenario)
        if comment is not None:
            comment = comment.replace(f'trains = "{trains}"', "")
        played.connect(owned.enter_context(open_writer(str(file), comment=comment, interfaces=interfaces)))
        with seldom_collected():
            played.play(None)
        played.close()
        result = played.outcome(None, None).as_dict()
    return {"capture": file.read_bytes(), "result": result, **_state(played)}


def _state(played: Any) -> Seen:
    """Return the counters and numbers that engines, NICs, links and queues have at the end."""
    network = played.network
    seen: Seen = {"time": (played.clock.now, len(played.clock), played.done_at, played.failure)}
    for name, nic in network.nics.items():
        seen[f"NIC of {name}"] = nic.sent, nic.repeated, nic.received, nic.received_at
    for name, engine in played.engines.items():
        pds = getattr(engine, "pds", None)
        if pds is None:
            seen[f"adapter {name}"] = dict(engine.counters)
            continue
        seen[f"endpoint {name}"] = repr(pds.counters), pds.nack_tx, pds.nack_rx, engine.deadline()
        for number, pdc in pds.pdcs.items():
            seen[f"PDC {number} of {name}"] = (
                pdc.state, pdc.tx.una, pdc.tx.next, pdc.tx.peer_cack, pdc.rx.cack, pdc.rx.max_clear, pdc.rx.max_rcvd,
                pdc.rx.sack_track, pdc.ack_gen_count, pdc.touched, pdc.wake_at, pdc.clear_at, pdc.stored_at,
                [(record.psn, record.rto_at, record.retx_at) for record in pdc.tx.records.values()],
            )  # fmt: skip
    for number, hop in enumerate(network.hops):
        seen[f"link {number}, {hop.source} > {hop.target}"] = hop.link.frames, hop.link.bytes, hop.link.busy_until
    for name, queue in network.queues.items():
        seen[f"queue {name}"] = queue.peak
    return seen


def _collective(case: Tables, trains: str, file: Path) -> Seen:
    kind = "float32"
    found = PreparedCase(CollectiveCase(**{"algorithm": None, **case}, dtype=dtype(kind), trains=trains)).run(str(file))
    return {"capture": file.read_bytes(), "result": repr(found)}


def difference(single: Seen, trains: Seen) -> str | None:
    """Return the first difference of a run of single packets and one with trains, or None."""
    if single == trains:
        return None
    for name in dict.fromkeys((*single, *trains)):
        here, there = single.get(name), trains.get(name)
        if here == there:
            continue
        if name == "capture" and isinstance(here, bytes) and isinstance(there, bytes):
            return _packets(here, there)
        return f"{name}: {here!r} without trains, {there!r} with them"
    return "the same values in another order"


def _packets(here: bytes, there: bytes) -> str:
    """Return the first packet that differs, and the first of its fields."""
    one, two = list(open_capture(BytesIO(here))), list(open_capture(BytesIO(there)))
    for number, (a, b) in enumerate(zip(one, two, strict=False), 1):
        told = [
            f"{name} is {getattr(a, name)!r} without trains, {getattr(b, name)!r} with them"
            for name in ("time_ns", "interface", "comment") if getattr(a, name) != getattr(b, name)
        ]  # fmt: skip
        told += _fields(a.data, b.data)
        if told:
            return f"packet {number}: {'; '.join(told)}"
    return (
        f"{len(one)} packets without trains, {len(two)} with them"
        if len(one) != len(two)
        else "the file around packets"
    )


def _fields(here: bytes, there: bytes) -> list[str]:
    if here == there:
        return []
    one, two = decode(here), decode(there)
    for a, b in zip(one.layers, two.layers, strict=False):
        if a.form != b.form:
            return [f"{a.form} is {b.form} with them"]
        for key, value in a.values.items():
            if value != b.values[key]:
                return [f"{a.form}.{key} is {value} without trains, {b.values[key]} with them"]
    at = next((at for at, (x, y) in enumerate(zip(here, there, strict=False)) if x != y), min(len(here), len(there)))
    return [f"byte {at} of {len(here)} and {len(there)}"]
