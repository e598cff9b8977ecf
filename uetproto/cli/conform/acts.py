# SPDX-License-Identifier: GPL-2.0-only
"""This module makes a peer act, for the tests in which it is the initiator: it runs a command, or says which one is
needed."""

import json
import os
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from uetproto import LocalError
from uetproto.cli.terminal import printable
from uetproto.conform.acting import CANNOT, PeerAct
from uetproto.conform.catalogue import ACTS, MODES, ROCE_ACTS
from uetproto.conform.roce.pairs import KINDS
from uetproto.errors import similar
from uetproto.framing.uet import Encapsulation

CANNOT_STATUS = 77
"""Exit status with which a driver says that its peer cannot do what a test wants."""
TAG = 5
"""Tag of a tagged send."""
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")
_TAIL = 4096
"""Number of bytes of the output of a driver that are kept."""
_MOST_READ = 1 << 20
"""Longest file of a driver that is compared with what the peer was sent."""
_MOST_PAIR = 64
_PSNS = 1 << 24
_GRACE = 2.0
"""Seconds that a driver has to end after SIGTERM."""
_COMMON = {
    "id": "id of the test", "length": "number of bytes", "file": "file with the bytes to write or send",
    "to": "file for the bytes that are read", "what": "{length} of a read, {file} of all else",
    "operand": "operand of an atomic, a number", "target": "our address", "peer": "address of the peer",
    "port": "UDP port of both ends, empty over native IP", "key": "memory key", "addr": "address in the memory",
    "mtu": "payload MTU",
}  # fmt: skip
FACTS = _COMMON | {
    "action": f"what to do: {', '.join(ACTS)}", "mode": f"{', '.join(MODES)}", "tag": "tag of a tagged send",
    "crc": "on or off: CRC32C", "protocol": "IP protocol of native IP, empty over UDP", "job": "JobID",
    "pid": "PIDonFEP", "index": "resource index", "initiator": "initiator id of the peer",
}  # fmt: skip
"""Facts that a driver of UET gets, and what each is: as placeholders, and in capitals with UETPROTO_ as its
environment."""
ROCE_FACTS = _COMMON | {
    "action": f"what to do: {', '.join(ROCE_ACTS)}", "mode": f"service: {', '.join(KINDS)}",
    "compare": "value that COMPARE_SWAP compares, a number", "imm": "immediate, or r_key to invalidate",
    "qpn": "our queue pair", "psn": "our first PSN", "peer_qpn": "queue pair of the peer",
    "peer_psn": "first PSN of the peer", "pair": "file for QPN and first PSN of the peer, if they are others",
    "q_key": "Q_Key of our queue pair", "p_key": "P_Key", "timeout": "code of the local ACK time-out",
    "retry_cnt": "retry count", "rnr_retry": "RNR retry count",
}  # fmt: skip
"""Facts that a driver of RoCE gets, as `FACTS`."""


class ActPlaces:
    """This class has the facts of an act that do not depend on the test, and the files of the act."""

    def __init__(self, folder: Path, target: str, peer: str, how: Encapsulation | int) -> None:
        """`how` is the encapsulation of UET, or the UDP port of RoCE."""
        self.folder = folder
        self.roce = isinstance(how, int)
        self.names = ROCE_FACTS if isinstance(how, int) else FACTS
        self._link = {"target": target, "peer": peer}
        if isinstance(how, int):
            self._link["port"] = str(how)
        else:
            self._link |= {
                "port": str(how.udp_port) if how.udp else "", "crc": "on" if how.crc else "off", "tag": str(TAG),
                "protocol": "" if how.udp else str(how.ip_protocol),
            }  # fmt: skip

    def facts(self, act: PeerAct) -> dict[str, str]:
        """Write the file of an act, and return its facts by their names."""
        file, to, pair = (self.folder / f"{act.test.id}.{name}" for name in ("act", "read", "pair"))
        for old in (to, pair):
            old.unlink(missing_ok=True)
        reads = act.operation == "read"
        if not reads:
            file.write_bytes(act.data)
        found = {"operand": str(int.from_bytes(act.data[:8], "big"))}
        found |= {name: str(value) for name, value in act.place.items()}
        found |= {
            "id": act.test.id, "action": act.operation, "mode": act.mode, "length": str(act.length),
            "file": "" if reads else str(file), "to": str(to), "what": str(act.length) if reads else str(file),
            "pair": str(pair), **self._link,
        }  # fmt: skip
        return {name: found.get(name, "") for name in self.names}


def filled(command: str, facts: Mapping[str, str]) -> list[str]:
    """Return the words of a driver with the facts in place of their names in braces. Raises `LocalError` for a name
    that is none."""

    def fact(found: re.Match[str]) -> str:
        name = found[1]
        if name not in facts:
            raise LocalError(
                "--driver", f"{found[0]} is not known{similar(name, facts)}", ", ".join(facts), id="driver-failed"
            )
        return facts[name]

    try:
        words = shlex.split(command)
    except ValueError as error:
        raise LocalError("--driver", f"{command!r}: {error}", "a command with arguments", id="driver-failed") from None
    if not words:
        raise LocalError("--driver", "is empty", "a command with arguments", id="driver-failed")
    return [_PLACEHOLDER.sub(fact, word) for word in words]


class DriverActor:
    """This class runs a command for each act (`acting.Actor`)."""

    tells = True

    def __init__(self, command: str, places: ActPlaces, stopped: Callable[[], bool]) -> None:
        """`stopped` says whether nobody waits for the driver any more. Raises `LocalError` for a command with
        placeholders that are not known."""
        filled(command, dict.fromkeys(places.names, ""))
        self.command, self.places, self.stopped = command, places, stopped
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None
        self._said = b""
        self._to = self._pair = Path()

    def begin(self, act: PeerAct) -> None:
        facts = self.places.facts(act)
        self._to, self._pair = Path(facts["to"]), Path(facts.get("pair", ""))
        words, self._said = filled(self.command, facts), b""
        environment = os.environ | {f"UETPROTO_{name.upper()}": value for name, value in facts.items()}
        try:
            self._process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise LocalError(
                "--driver", f"{words[0]}: {why}", "a command that can be run", id="driver-failed"
            ) from None
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, output: IO[bytes]) -> None:
        while data := os.read(output.fileno(), _TAIL):
            self._said = (self._said + data)[-_TAIL:]

    def ended(self) -> str | None:
        status = None if self._process is None else self._process.poll()
        if status is None:
            return "error" if self.stopped() else None
        return {0: "ok", CANNOT_STATUS: CANNOT}.get(status, "error")

    def words(self) -> str:
        if self._process is None or (status := self._process.poll()) is None:
            return "interrupted" if self.stopped() else "the driver has not ended"
        if self._reader is not None:
            self._reader.join(_GRACE)
        lines = [line for line in self._said.decode(errors="replace").splitlines() if line.strip()]
        last = f": {printable(lines[-1].strip()[:200])}" if lines else ""
        return f"the driver ended with status {status}{last}"

    def result(self) -> bytes | None:
        try:
            with self._to.open("rb") as file:
                return file.read(_MOST_READ)
        except OSError:
            return None

    def pair(self) -> tuple[int, int] | None:
        """Return what the driver has written of its queue pair (`roce.acting.PairActor`). Raises `LocalError` for what
        is no QPN and PSN."""
        try:
            with self._pair.open("rb") as file:
                text = file.read(_MOST_PAIR)
        except OSError:
            return None
        if not text.endswith(b"\n") and len(text) < _MOST_PAIR:  # it is being written
            return None
        try:
            qpn, psn = (int(word, 0) for word in text.decode().split())
            if not (2 <= qpn < _PSNS and 0 <= psn < _PSNS):
                raise ValueError
        except ValueError:
            told = f"{printable(text.decode(errors='replace').strip())!r} is not legal"
            raise LocalError(
                str(self._pair), told, "a line with QPN and first PSN, such as 0x12 7", id="driver-failed"
            ) from None
        return qpn, psn

    def end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for number, seconds in ((signal.SIGTERM, _GRACE), (signal.SIGKILL, None)):
            try:
                os.killpg(process.pid, number)
            except (ProcessLookupError, PermissionError):
                break
            try:
                process.wait(seconds)
                break
            except subprocess.TimeoutExpired:
                continue
        process.wait()
        if self._reader is not None:
            self._reader.join(_GRACE)
        if process.stdout is not None and (self._reader is None or not self._reader.is_alive()):
            process.stdout.close()


class PersonActor:
    """This class says what the peer has to do, and leaves it to whoever reads it (`acting.Actor`)."""

    tells = False

    def __init__(
        self, places: ActPlaces, tell: Callable[[str], None], stopped: Callable[[], bool], as_json: bool
    ) -> None:
        self.places, self.tell, self.stopped, self.as_json = places, tell, stopped, as_json

    def begin(self, act: PeerAct) -> None:
        facts = self.places.facts(act)
        self.tell(json.dumps({"kind": "act", **facts}) if self.as_json else act_words(act, facts))

    def ended(self) -> str | None:
        return "error" if self.stopped() else None

    def words(self) -> str:
        return "interrupted" if self.stopped() else "no packet came in time"

    def result(self) -> bytes | None:
        return None

    def pair(self) -> tuple[int, int] | None:
        """Return None: the queue pairs are those of PEER.toml."""
        return None

    def end(self) -> None:
        """Nothing can be ended."""


def act_words(act: PeerAct, facts: Mapping[str, str]) -> str:
    """Return a line that says what the peer has to do."""
    roce = "peer_qpn" in act.place
    what = f"operand {facts['operand']}" if act.operation in ("atomic", "fetch") else f"{act.length:,} bytes"
    if act.operation == "cas":
        what = f"compare {facts['compare']}, swap {facts['operand']}"
    file = "" if act.operation in ("read", "atomic", "fetch", "cas") else f" ({facts['file']})"
    name = (ROCE_ACTS if roce else ACTS)[act.operation]
    where = _roce_place(act) if roce else _uet_place(act)
    return f"{act.test.id}  at the peer: {act.mode.upper()} {name}, {what}{file}, to {facts['target']}, {where}"


def _uet_place(act: PeerAct) -> str:
    place = act.place
    where = f"PIDonFEP {place['pid']}, resource index {place['index']}"
    if act.operation not in ("send", "tagged", "deferrable", "rendezvous"):
        where = f"key {place['key']:#x}, address {place['addr']:#x}, {where}"
    if act.operation == "tagged":
        where = f"tag {TAG}, {where}"
    return f"{where}, JobID {place['job']}"


def _roce_place(act: PeerAct) -> str:
    place = act.place
    where = f"from queue pair {place['peer_qpn']:#x}, PSN {place['peer_psn']}, to {place['qpn']:#x}"
    if not act.operation.startswith("send"):
        where += f", key {place['key']:#x}, address {place['addr']:#x}"
    if act.operation.endswith("imm"):
        where += f", immediate {place['imm']:#x}"
    if act.operation == "send_inv":
        where += f", r_key to invalidate {place['imm']:#x}"
    if act.mode == "ud":
        where += f", Q_Key {place['q_key']:#x}"
    more = ", ".join(f"{name} {place[name]}" for name in ("timeout", "retry_cnt", "rnr_retry"))
    return f"{where}, {more}" if act.mode == "rc" else where
