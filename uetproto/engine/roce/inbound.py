# SPDX-License-Identifier: GPL-2.0-only
"""This module has the common part of RC and UC responders, which checks and stores the message in progress (roce.md
§8)."""

from uetproto.engine.memory import RunMemory, run_memory
from uetproto.engine.roce.contract import Access, Receive, Status, WcFlags, WcOpcode
from uetproto.engine.roce.memory import BadKeyError, RoceMemoryRegion, SgeSegments
from uetproto.engine.roce.packets import Parsed
from uetproto.engine.roce.qp import Qp, ResponderHalf
from uetproto.engine.roce.segments import SENDS, STARTS, WITH_IMM, WITH_INV, MessagePhase, MessageStep, size_is_legal
from uetproto.engine.train_splits import Split


class Inbound(ResponderHalf):
    """An RC or UC responder has one message in progress at a time, whose state this class holds."""

    def __init__(self, qp: Qp) -> None:
        self.qp = qp
        self.config = qp.hca.config
        self.path_mtu = qp.attributes.path_mtu
        self.phase = MessagePhase.IDLE
        self.done = 0
        """Number of bytes of the message that are stored."""
        self.total = 0
        """Length of a WRITE in bytes, which is the dmalen of its RETH."""
        self._region: RoceMemoryRegion | None = None
        """Memory region of a WRITE, or None if the WRITE has no bytes or the message is no WRITE."""
        self._va = 0
        self._receive: Receive | None = None
        self._segments: SgeSegments | None = None

    # What can be wrong

    @staticmethod
    def needs_receive(parsed: Parsed) -> bool:
        """Return True when a packet needs a posted receive that the message does not have yet (roce.md §8 check 5)."""
        return parsed.step in (MessageStep.SEND_FIRST, MessageStep.SEND_ONLY) or (
            parsed.operation in WITH_IMM and parsed.step not in SENDS
        )

    def segments(self, receive: Receive) -> SgeSegments:
        """Return the scatter list of the receive. It is created once for each message."""
        if self._receive is not receive or self._segments is None:
            pd = self.qp.receives.pd if self.qp.receives.shared else self.qp.pd
            self._receive = receive
            self._segments = SgeSegments(self.qp.hca.regions, pd, receive.sg_list, Access.LOCAL_WRITE)
        return self._segments

    def size_is_right(self, parsed: Parsed) -> bool:
        """Return True when the payload length (roce.md §3) and the pad are legal, and the message length is legal so
        far.

        The payloads of a WRITE must add up to its dmalen (roce.md §8 check 7).
        """
        step, size = parsed.step, len(parsed.payload)
        assert step is not None
        if not size_is_legal(step, size, self.path_mtu) or not parsed.pad_is_legal:
            return False
        if step in SENDS:
            return step in STARTS or self.done + size <= self.config.max_message
        if step in (MessageStep.RDMA_WRITE_FIRST, MessageStep.RDMA_WRITE_ONLY, MessageStep.READ):
            if parsed.values["dmalen"] > self.config.max_message:
                return False
            there, total = size, parsed.values["dmalen"]
        else:
            there, total = self.done + size, self.total
        if step is MessageStep.RDMA_WRITE_ONLY or step is MessageStep.RDMA_WRITE_LAST:
            return there == total
        return step not in (MessageStep.RDMA_WRITE_FIRST, MessageStep.RDMA_WRITE_MIDDLE) or there < total

    def fits_receive(self, parsed: Parsed) -> bool:
        """Return False when a SEND is longer than its receive (roce.md §8 check 7)."""
        if parsed.step not in SENDS:
            return True
        receive = self.qp.peek_receive()
        done = 0 if parsed.step in STARTS else self.done
        return receive is not None and done + len(parsed.payload) <= self.segments(receive).length

    def place_of_message(self, sends: bool) -> tuple[RunMemory, int, int] | Split:
        """Return the memory in which the message is stored, its offset there, and how many bytes it may have before its
        last packet. Return why not if each packet must be checked."""
        if not sends:
            region, most = self._region, self.total - 1
            if region is None or region.dead:
                return Split.MESSAGE
            start = self._va - region.addr
        else:
            receive = self.qp.held
            if receive is None:
                return Split.MESSAGE
            segments = self.segments(receive)
            found, most = segments.whole(), min(segments.length, self.config.max_message)
            if found is None:
                return Split.MEMORY
            region, start = found
        memory = run_memory(region.memory)
        return Split.MEMORY if memory is None else (memory, start, most)

    # The effect

    def store(self, parsed: Parsed) -> None:
        """Store the payload of a SEND or WRITE packet that has passed all checks.

        Raises `BadKeyError` if a key or a region does not permit the access.
        """
        step = parsed.step
        if step in STARTS:
            self.done = 0
        if step in SENDS:
            self.segments(self.qp.hold_receive()).write(self.done, parsed.payload)
        else:
            if step in STARTS:
                self.total, self._va = parsed.values["dmalen"], parsed.values["va"]
                self._region = None
                if self.total:
                    key, right = parsed.values["r_key"], Access.REMOTE_WRITE
                    self._region = self.qp.hca.regions.remote(self.qp.pd, key, self._va, self.total, right)
            if self._region is not None:
                self._region.write(self._va + self.done, parsed.payload)
        self.done += len(parsed.payload)

    def finish(self, parsed: Parsed) -> None:
        """End the message. A SEND and a WRITE with immediate data complete a receive."""
        sends = parsed.step in SENDS
        immediate = parsed.values["immdt"] if parsed.operation in WITH_IMM else None
        invalidated = parsed.values["r_key"] if parsed.operation in WITH_INV else None
        if invalidated is not None:
            region = self.qp.hca.regions.by_rkey.get(invalidated)
            if region is not None:
                region.invalidated = True
        if sends or immediate is not None:
            self.qp.hold_receive()
            flags = WcFlags.WITH_IMM if immediate is not None else WcFlags(0)
            flags |= WcFlags.WITH_INV if invalidated is not None else WcFlags(0)
            opcode, length = (WcOpcode.RECV, self.done) if sends else (WcOpcode.RECV_RDMA_WITH_IMM, self.total)
            self.qp.end_receive(
                Status.SUCCESS, opcode, byte_len=length, imm_data=immediate, invalidated_rkey=invalidated,
                src_qp=self.qp.attributes.dest_qpn, wc_flags=flags, solicited=bool(parsed.se),
            )  # fmt: skip
        self._region = None
        self._receive = self._segments = None
        self.done = self.total = 0

    def keys_are_good(self, parsed: Parsed, right: Access, length: int) -> bool:
        """Return True when the r_key of a packet permits access to `length` bytes, or `length` is 0 (roce.md §8 check
        8).

        The protection domain, the right and the range are checked.
        """
        if not length:
            return True
        values = parsed.values
        try:
            self.qp.hca.regions.remote(self.qp.pd, values["r_key"], values["va"], length, right)
        except BadKeyError:
            return False
        return True
