# SPDX-License-Identifier: GPL-2.0-only
"""This module plays scripts over UET with a scripted SES, by means of a `UetSimulator`."""

from collections.abc import Iterator
from dataclasses import asdict, replace

from uetproto.check.uet.invariant_monitor import InvariantMonitor
from uetproto.check.uet.scripted_ses import ScriptedSes, content
from uetproto.check.uet.simulator import UetSimulator
from uetproto.check.wire import ADDRESSES, ALL, HISTORY
from uetproto.emulator.network.scripted_wire import legal_frames
from uetproto.emulator.run.result import RunResult, counters_of
from uetproto.emulator.run.script_run import ScriptRun
from uetproto.emulator.run.scripted_fep import never_came
from uetproto.emulator.run.small_reads import SmallReads, small_read
from uetproto.emulator.scenario.script_syntax import ScriptRow
from uetproto.emulator.scenario.settings import NodeConfig, Scenario
from uetproto.engine.contract import PDC_MODES, Buffer, Datagram, Mode, PdsError, TrafficClass
from uetproto.engine.pds.nacks import nacks_of
from uetproto.engine.pds.service import Connection, Outgoing, PdsUser, Refusal, Response
from uetproto.engine.pds.states import Role
from uetproto.engine.pds.sublayer import Pds
from uetproto.engine.ses.headers import parse_ses_request
from uetproto.errors import LocalError
from uetproto.framing.tss import Secured
from uetproto.framing.uet import UetFramer
from uetproto.impair.frame_outcome import FrameOutcome
from uetproto.impair.trim import trim
from uetproto.steps.uet import MessageSpec, UetStep
from uetproto.wire.headers.uet_pds import NextHdr, PdsType
from uetproto.wire.headers.uet_ses import RESPONSE_DATA
from uetproto.wire.tuples import SesResponseDataHeader

_CONTROL = (PdsType.ACK, PdsType.ACK_CC, PdsType.ACK_CCX, PdsType.NACK, PdsType.NACK_CCX, PdsType.CP)


class UetScript(ScriptRun[UetStep]):
    """This run plays a script over UET with a scripted SES, in which rows say how SES answers."""

    step_type = UetStep
    simulator: UetSimulator

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        run_, how = scenario.run, scenario.encapsulation
        security = scenario.security
        self.secured = secured = None if security is None else Secured(security, lambda: self.simulator.now)
        self.framers = tuple(
            UetFramer(node.address, node.ip_version, how, ecn_capable=node.pds.ecn_capable)
            if secured is None else secured.framer(node, how) for node in self.nodes
        )  # fmt: skip
        first, second = self.nodes
        plane = scenario.plane if scenario.plane is not None and scenario.plane.controls else None
        one, two = (asdict(node.pds if plane is None else plane.tuned(node.pds)) for node in (first, second))
        self.simulator = UetSimulator(
            run_.seed,
            (one, two),
            (first.preset, second.preset),
            mtu=run_.payload,
            mode=run_.mode if run_.mode in PDC_MODES else Mode.RUD,
            wire=self.wire,
            contexts=None if plane is None else plane.contexts,
        )
        self.records = [
            _Record(monitor, node) for monitor, node in zip(self.simulator.monitors, self.nodes, strict=True)
        ]
        self.submitted: list[tuple[int, MessageSpec]] = []
        """Messages that SES has handed to PDS, each with the number of its node."""
        self.not_trimmed = 0
        self._promised: list[tuple[ScriptedSes, ScriptRow[UetStep]]] = []
        """Rows `respond` that were played before the packet with their PSN arrived, with the SES that has to answer."""
        self._former: list[Pds] = []
        """PDS of endpoints before a restart."""

    # Steps

    def _apply(self, row: ScriptRow[UetStep]) -> None:
        step, simulator = row.step, self.simulator
        match step.action:
            case "submit":
                self._submit(row)
            case "trim":
                for number in self._there(step):
                    self._trim(number, step)
            case "dup" if step.number != ALL and self.wire.recent(step.number) is None:
                can = filter(self.wire.recent, range(max(0, self.wire.sent - HISTORY), self.wire.sent))
                raise LocalError(f"frame {step.number} cannot be copied; {legal_frames(can)}", id="step-impossible")
            case "close" if not self._opened(step.node):
                raise LocalError(
                    f"node {self.nodes[step.node].name} has opened no PDC, so that none can be closed",
                    id="step-impossible",
                )
            case "respond":
                ses = simulator.ses[step.node]
                simulator.apply(step)
                if step.number in ses.script:
                    self._promised.append((ses, row))
            case "restart":
                self._former.append(simulator.monitors[step.node].pds)
                simulator.apply(step)
                self.records[step.node].attach(simulator.monitors[step.node])
            case _:
                simulator.apply(step)

    def _told(self) -> str:
        return "".join(f"; {text}" for text in self.secured.troubles()) if self.secured else ""

    def _submit(self, row: ScriptRow[UetStep]) -> None:
        node, message = row.step.node, row.step.message
        assert message is not None
        if row.header == "small":
            self.simulator.send(node, small_read(ADDRESSES[1 - node], message, self.scenario.run.payload))
            message = message._replace(message_id=0)
        else:
            self.simulator.apply(row.step)
        self.submitted.append((node, message))

    def _opened(self, node: int) -> bool:
        return any(pdc.role is Role.INITIATOR for pdc in self.simulator.monitors[node].pds.pdcs.values())

    def _delivered(self, node: int) -> None:
        simulator = self.simulator
        if self.records[node].small.answer(simulator.monitors[node].pds, simulator.now):
            simulator.settle(node)

    def forged(self, step: UetStep) -> Datagram:
        kind = step.data[0] >> 3 if step.data else 0
        traffic_class = TrafficClass.CONTROL if kind in _CONTROL else TrafficClass.DATA
        source, target = self.nodes[1 - step.node], self.nodes[step.node]
        return Datagram(source.address, target.address, step.data, b"", traffic_class)

    def _trim(self, number: int, step: UetStep) -> None:
        """Trim a frame as a switch would; control frames and short frames stay whole and are counted."""
        frame = self.wire.frames[number]
        short = trim(frame, self.scenario.encapsulation.dscp, last_hop=bool(step.at))
        if short is not None:
            self.wire.change(number, short, FrameOutcome.TRIMMED)
        else:
            self.not_trimmed += 1

    # The result

    def result(self, output: str | None) -> RunResult:
        found = super().result(output)
        if self.secured is None:
            return found
        return replace(found, failure=self.secured.failure(found.failure), security=self.secured.report())

    def compared(self) -> Iterator[tuple[bytes, bytes]]:
        for node, message in self.submitted:
            for at, key, data in self._pieces(node, message):
                yield data, self.records[at].taken.get(key, b"")

    def nacks(self) -> dict[str, int]:
        return nacks_of(pds.nack_tx for pds in (*self._former, *(monitor.pds for monitor in self.simulator.monitors)))

    def counters(self) -> dict[str, dict[str, int]]:
        monitors = self.simulator.monitors
        return counters_of({node.name: monitor.pds for node, monitor in zip(self.nodes, monitors, strict=True)})

    def failures(self) -> list[str]:
        errors = [error for record in self.records for error in record.errors]
        failures = [f"message {errors[0][0]}: {errors[0][1].reason.value}"] if errors else []
        promised = ((row.where, row.step.number) for ses, row in self._promised if row.step.number in ses.script)
        return failures + never_came(promised)

    def refused(self) -> dict[str, int]:
        return {**super().refused(), "not_trimmed": self.not_trimmed}

    def _pieces(self, node: int, message: MessageSpec) -> Iterator[tuple[int, "_Key", bytes]]:
        """Yield {node, key, bytes} for each packet of data of a message; `node` is where the data must arrive.

        This is the other node, or, for a read, the node itself.
        """
        read = message.op == "read"
        if read and message.answer in _WITHOUT_DATA:
            return
        size = self.scenario.run.payload
        if message.answer == "data" and message.packets == 1:
            size = min(size, self.nodes[1 - node].pds.max_ack_data_size)
        at = node if read else 1 - node
        message_id = 0 if message.mode is Mode.UUD else message.message_id
        for index in range(message.packets):
            yield at, (read, message_id, index * size), content(message_id, index, size)


_WITHOUT_DATA = ("gtd", "later", "no_response")
"""Answers to a read without data, or with data that come later."""

_Key = tuple[bool, int, int]
"""Type of the key of arrived bytes: whether they are read data, message id of the request, message offset."""


class _Record:
    """This recorder stands between PDS and scripted SES of a node, and keeps the data that arrive
    (`service.PdsUser`).
    """

    def __init__(self, monitor: InvariantMonitor, node: NodeConfig) -> None:
        self.taken: dict[_Key, bytes] = {}
        self._known: dict[bytes, bytes] = {}
        """Bytes that arrived; equal bytes are stored once, as generated bytes repeat."""
        self.errors: list[tuple[int, PdsError]] = []
        """Errors that PDS reported to SES, one for each packet, with the id of the message."""
        self.small = SmallReads()
        self.attach(monitor)
        if node.pkt_id is not None:
            monitor.pds.without_pdc.next_id = node.pkt_id

    def attach(self, monitor: InvariantMonitor) -> None:
        """Stand between PDS and SES of `monitor`; after a restart of the endpoint, earlier data are kept."""
        self._user: PdsUser = monitor.user
        monitor.user = self
        self.on_reread = self._user.on_reread
        self.on_closed = self._user.on_closed

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        if next_hdr == NextHdr.REQUEST_SMALL:
            return self.small.take(pdc, psn, data, at)
        answer = self._user.on_request(pdc, psn, next_hdr, data, at, payload, now)
        if not isinstance(answer, Refusal):
            if next_hdr == NextHdr.REQUEST_STD:
                request = parse_ses_request(data, at, next_hdr)
                self._take(False, request.message_id or 0, request.message_offset, payload)
            elif next_hdr == NextHdr.RESPONSE_DATA:
                self._take_data(data, at, payload)
            elif next_hdr == NextHdr.RESPONSE_DATA_SMALL:
                self._take(True, 0, 0, payload)
        return answer

    def on_response(self, message: Outgoing, index: int, next_hdr: int, response: Buffer | None, now: int) -> None:
        if next_hdr == NextHdr.RESPONSE_DATA and response is not None:
            self._take_data(response, 0, response[RESPONSE_DATA.size :])
        self._user.on_response(message, index, next_hdr, response, now)

    def on_error(self, message: Outgoing, index: int, error: PdsError) -> None:
        self.errors.append((message.message_id, error))
        self._user.on_error(message, index, error)

    def _take_data(self, data: Buffer, at: int, payload: Buffer) -> None:
        head = SesResponseDataHeader.read(data, at)
        self._take(True, head.read_request_message_id, head.message_offset, payload)

    def _take(self, read: bool, message_id: int, offset: int, payload: Buffer) -> None:
        data = bytes(payload)
        self.taken[read, message_id, offset] = self._known.setdefault(data, data)
