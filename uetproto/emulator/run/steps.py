"""Scripted runs: `[[step]]` rows say what happens on the wire, one thing after the other.

Frames that the nodes send are numbered from 0, in the order in which they leave, and stay on the wire until a step
takes them. Time passes only when a step says so.

    submit = 4096               the initiator writes the next 4096 bytes of the input ("all": what is left)
    deliver = 2                 frame 2 arrives; [2, 3] several, "all" whatever is on the wire, oldest first
    drop = 2                    it does not; likewise a list, or "all"
    dup = 2                     a copy, with a number of its own, is on the wire
    trim = 2                    it is cut as a switch would
    corrupt = 2, at = 60        the lowest bit of byte 60 of frame 2 changes
    advance = "1 ms"            time passes, timers run
    respond = 333, gtd = true, code = "NO_MATCH"
                                the target answers the request with PSN 333 so, when it comes; one that does not
                                come before the last row fails the run
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from uetproto.emulator.network.clock import Clock
from uetproto.emulator.network.frame_outcome import Fate, Fates
from uetproto.emulator.network.link import Port
from uetproto.emulator.network.switch import Dscp, trim
from uetproto.emulator.scenario.script_syntax import legal_frames
from uetproto.engine.contract import Buffer, Rng
from uetproto.engine.fep import Fep
from uetproto.engine.pds.service import Connection, Refusal, Response
from uetproto.engine.ses.headers import build_response, parse_ses_request
from uetproto.errors import LocalError
from uetproto.wire.headers.uet_ses import ResponseOpcode, ReturnCode

ALL = -1
"""In place of a number: whatever there is."""


def never_came(rows: Iterable[tuple[str, int]]) -> list[str]:
    """What a run says of `respond` rows, {where, PSN}, that answered nothing: of the first of them, and how many."""
    found = list(rows)
    more = f", and {len(found) - 1} more such rows" if found[1:] else ""
    return [f"{where}: PSN {psn} ({psn:#x}) did not come before the last step{more}" for where, psn in found[:1]]


@dataclass(frozen=True, slots=True)
class Step:
    """One row. `where` says in what file and line it stands; the other fields belong to `action`."""

    where: str
    action: str
    numbers: tuple[int, ...] = ()
    """Frames; for `submit` bytes, for `advance` picoseconds, for `respond` the PSN."""
    at: int = 0
    gtd: bool = False
    code: ReturnCode = ReturnCode.OK


class ScriptedWire:
    """Keeps frames until somebody says what becomes of them."""

    def __init__(self, clock: Clock, dscp: Dscp, fates: Fates | None = None) -> None:
        self._clock = clock
        self._fates = fates or Fates()
        self._dscp = dscp
        self._ports: dict[bytes, Port] = {}
        self._frames: dict[int, bytes] = {}
        self._number = 0

    def attach(self, mac: bytes, port: Port) -> None:
        """Frames to this address arrive there."""
        self._ports[mac] = port

    @property
    def busy_until(self) -> int:
        return self._clock.now

    def send(self, frame: bytes) -> int:
        self._frames[self._number] = frame
        self._number += 1
        return self._clock.now

    def play(self, step: Step) -> None:
        """One of deliver, drop, dup, trim, corrupt. Raises `LocalError` for a frame that is not on the wire."""
        numbers = tuple(self._frames) if step.numbers == (ALL,) else step.numbers
        for number in numbers:
            if number not in self._frames:
                raise LocalError(f"{step.where}: frame {number} is not on the wire; {legal_frames(self._frames)}")
            getattr(self, f"_{step.action}")(number, step)

    def _deliver(self, number: int, step: Step) -> None:
        frame = self._frames.pop(number)
        self._fates.arrived(frame)
        port = self._ports.get(frame[:6])
        if port is not None:
            port.take(frame)

    def _drop(self, number: int, step: Step) -> None:
        self._fates.lost(self._frames.pop(number))

    def _dup(self, number: int, step: Step) -> None:
        self._fates.copied(self._frames[number])
        self.send(self._frames[number])

    def _trim(self, number: int, step: Step) -> None:
        short = trim(self._frames[number], self._dscp, last_hop=True)
        if short is None:
            raise LocalError(f"{step.where}: frame {number} must not be trimmed: it is control, or short already")
        self._change(number, short, Fate.TRIMMED)

    def _corrupt(self, number: int, step: Step) -> None:
        frame = bytearray(self._frames[number])
        if step.at >= len(frame):
            raise LocalError(f"{step.where}: frame {number} has {len(frame)} bytes; legal: at = 0 … {len(frame) - 1}")
        frame[step.at] ^= 1
        self._change(number, bytes(frame), Fate.DAMAGED)

    def _change(self, number: int, now: bytes, fate: Fate) -> None:
        self._fates.changed(self._frames[number], now, fate)
        self._frames[number] = now


class ScriptedFep(Fep):
    """An endpoint that answers some requests as a script says; their data goes nowhere."""

    def __init__(self, address: int, rng: Rng, **more: Any) -> None:
        super().__init__(address, rng, **more)
        self.script: dict[int, Step] = {}
        """By PSN."""
        self.asked: set[int] = set()
        """PSNs of the script that have come."""

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        step = self.script.get(psn)
        if step is None:
            return super().on_request(pdc, psn, next_hdr, data, at, payload, now)
        self.asked.add(psn)
        request = parse_ses_request(data, at, next_hdr)
        good = step.code in (ReturnCode.OK, ReturnCode.NULL) and not step.gtd
        opcode = ResponseOpcode.DEFAULT_RESPONSE if good else ResponseOpcode.RESPONSE
        length = request.request_length if good else 0
        header = build_response(opcode, step.code, request.message_id or 0, request.job_id, length)
        return Response(header, gtd=step.gtd or not good)
