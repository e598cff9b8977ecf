"""A read whose packets are answered, and whose PDC ends before the data comes: it fails (ses.md §5.4)."""

from tests.engine.world import JOB, KEY, A, B, Pair
from uetproto.engine import Datagram, Write
from uetproto.engine.contract import Completion, PdcErrorReason, Read
from uetproto.engine.messages import Ack, parse


def test_a_read_ends_with_its_pdc() -> None:
    """The target answers, then nothing is heard of it any more: a write on the same PDC uses up its retransmissions."""
    pair = Pair(bytearray(20_000))
    pair.a.submit(Read(peer=B, key=KEY, job_id=JOB, into=bytearray(20_000), context="read"), 0)
    for packet in pair.a.poll(0):
        pair.b.receive(Datagram(A, B, bytes(packet.header) + bytes(packet.payload)), 0)
    for packet in pair.b.poll(0):
        if isinstance(parse(packet.header, packet.trimmed), Ack):  # the data itself is lost
            pair.a.receive(Datagram(B, A, bytes(packet.header) + bytes(packet.payload)), 0)
    pair.a.submit(Write(peer=B, key=KEY, job_id=JOB, data=b"x", context="write"), 0)
    while (due := pair.a.deadline()) is not None and pair.a.pds.pdcs:
        pair.a.poll(due)
    ended = {event.context: event.error for event in pair.a.events() if isinstance(event, Completion)}
    assert {name: error and error.reason for name, error in ended.items()} == {
        "write": PdcErrorReason.RTO_EXHAUSTED,
        "read": PdcErrorReason.PEER_CLOSED,
    }
    assert pair.a.quiescent
