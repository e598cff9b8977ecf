# SPDX-License-Identifier: GPL-2.0-only
"""This module plays the scenario of a ladder, row by row, against the ladder as a text: one line a packet.

    A REQ 7>3 psn 333 clear 332 coff -1 …   A sends it: every number and flag (`lines`)
    B rx REQ 333                            it arrives, as it was sent but for what `name` says
    lost REQ 333                            it does not
    copy of REQ 333                         the network makes another one
    at 1 ms                                 time has passed
    B restarts
    A: una 334 clear 333                    the state after all that, by the names of `Ends`

Spaces do not count, and a row that begins with | goes on with the one before. At the end nothing is left on the wire,
and no invariant was broken.
"""

from collections.abc import Iterator

from tests.support.ladders.lines import line, name
from uetproto import Packet, decode
from uetproto.check.wire import ALL
from uetproto.emulator.run.uet_script import UetScript
from uetproto.emulator.scenario.script_syntax import ScriptRow
from uetproto.emulator.scenario.settings import load
from uetproto.engine.pds.pdc import Pdc

PS = 1000
"""Number of picoseconds in a nanosecond; frames have nanoseconds in a capture."""
MS = 10**9


class Ends:
    """The state that A and B have, by the names that ladders use."""

    def __init__(self, script: UetScript) -> None:
        self.script = script
        self.pdcs: dict[int, Pdc] = {}

    def look(self) -> None:
        """Keep the PDC of the ladder, to be asked also after its end."""
        for node, monitor in enumerate(self.script.simulator.monitors):
            preset = self.script.nodes[node].preset.pdcid
            found = monitor.pds.pdcs.get(preset or 0) or next(iter(monitor.pds.pdcs.values()), None)
            if found is not None:
                self.pdcs[node] = found

    def get(self, node: int, key: str) -> str:
        """Return a number or a list, as text."""
        simulator = self.script.simulator
        pds, ses = simulator.monitors[node].pds, simulator.ses[node]
        counters = pds.counters.as_dict()
        if key in counters:
            return str(counters[key])
        if key in ("delivered", "answered", "failed"):  # packets, as SES sees them
            return str(getattr(ses, key))
        if key == "pdcs":
            return str(len(pds.pdcs))
        if key == "errors":  # the reasons told to SES, each once
            return ",".join(sorted({error.reason.name for _, error in self.script.records[node].errors})) or "-"
        pdc = self.pdcs[node]
        for one in getattr(pdc.cc, "algorithms", ()):
            if key in ("cwnd", "inflight", "credit", "granted") and hasattr(one, key):
                return str(int(getattr(one, key)))
            if key == "base_rtt" and hasattr(one, key):
                return str(one.base_rtt // PS)
        tx, rx = pdc.tx, pdc.rx
        values: dict[str, object] = {
            "state": pdc.state.name,
            "una": tx.una, "next": tx.next, "clear": tx.clear_psn, "peer_cack": tx.peer_cack,
            "start": rx.start, "cack": rx.cack, "max_clear": rx.max_clear, "stored": rx.stored,
            "dst_rcvd": ",".join(str(psn) for psn, record in tx.records.items() if record.dst_rcvd) or "-",
        }  # fmt: skip
        value = values[key]
        return f"0x{value:X}" if isinstance(value, int) and value >= 1 << 31 else str(value)


class Player:
    """This class plays a script, whose two taps make lines (`scripted.Sink`)."""

    def __init__(self, scenario: str) -> None:
        self.script = UetScript(load(scenario, ["tap.nodes=all"]))
        self.script.sink = self
        self.ends = Ends(self.script)
        self.lines: list[str] = []
        self.now = 0
        self._sent: set[bytes] = set()
        self._came: set[bytes] = set()

    def add(self, time: int, frame: bytes, interface: int, leaves: bool = False) -> None:
        self._at(time)
        node = "AB"[interface]
        mine = int.from_bytes(frame[6:12], "big") & 0xFFFFFFFF == self.script.nodes[interface].address
        packet = decode(frame)
        self.lines.append(f"{node} {line(packet)}" if mine else f"{node} rx {name(packet)}")

    def _at(self, time: int) -> None:
        if time != self.now:
            self.now = time
            self.lines.append(f"at {time / MS:.12g} ms")

    def _names(self, row: ScriptRow) -> list[str]:
        wire = self.script.wire
        numbers = list(wire.flight) if row.step.number == ALL else [row.step.number]
        return [name(self.packet(number)) for number in numbers]

    def packet(self, number: int) -> Packet:
        return decode(self.script.wire.frames[number])

    def play(self) -> Iterator[list[str]]:
        """Yield the lines of each row."""
        for row in self.script.scenario.script:
            self.lines = []
            match row.step.action:
                case "drop":
                    self.lines += [f"lost {text}" for text in self._names(row)]
                case "dup":
                    self.lines += [f"copy of {text}" for text in self._names(row)]
                case "restart":
                    self.lines.append(f"{'AB'[row.step.node]} restarts")
            self.ends.look()
            self.script.step(row)
            self.ends.look()
            self._at(self.script.simulator.now)
            yield self.lines


def ladder(scenario: str, text: str) -> Player:
    """Play a scenario. Fail if the result is not the ladder `text`."""
    player = Player(scenario)
    wanted = [" ".join(row.split()) for row in text.replace("\n        |", " |").splitlines() if row.strip()]
    at = 0
    for lines in player.play():
        for seen in lines:
            assert at < len(wanted), f"row {at}: {seen!r}, and the ladder is at its end"
            assert seen == wanted[at], f"row {at}"
            at += 1
        while lines and at < len(wanted) and wanted[at][1:2] == ":":
            _assert_state(player.ends, wanted[at], at)
            at += 1
    assert at == len(wanted), f"row {at}: {wanted[at]!r} does not come"
    assert not player.script.wire.flight
    assert player.script.finish() is None
    return player


def _assert_state(ends: Ends, text: str, at: int) -> None:
    words = text[2:].split()
    found = [word for key in words[::2] for word in (key, ends.get("AB".index(text[0]), key))]
    assert found == words, f"row {at}: {text[0]}"
