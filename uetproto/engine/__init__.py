# SPDX-License-Identifier: GPL-2.0-only
"""This package has the sans-IO engine of Ultra Ethernet Transport. Drivers (emulator, live) rely on this interface.

The five calls
--------------
`Fep(address, rng, *, pds=PdsConfig(), ses=SesConfig(), ip_version=4)` is one fabric endpoint, and an `Engine`::

    fep.receive(datagram, now)     takes a packet from the network; it never raises on bytes from outside
    fep.submit(work, now)          takes Write, Read, Send, Receive, …, Close(peer=…), AskClose(pdcid=…), and the
                                   control packets Noop, Negotiate, Probe, AskCredit, GiveCredit; it raises
                                   LocalError for work that is not possible
    fep.poll(now, limit=NEVER)     runs the timers that are due and returns the datagrams to send now. Call it after
                                   every receive and submit, and at deadline(). `limit` bounds the first transmissions;
                                   further ones stay queued for the next poll, so that a driver can pull at line rate
    fep.deadline()                 returns when poll must be called at the latest, or None if no timer is armed
    fep.events()                   returns the events since the last call, in order

`now` is an integer of picoseconds and never goes back. `rng` is a seeded `random.Random`, of which the engine uses
`getrandbits` and `random`: one seed gives one trace. Addresses are integers.

`fep.quiescent` is True when nothing is in flight, queued or unanswered: only idle timers may be armed (a PDC closes
after `PdsConfig.idle_time`, 60 s; an `idle_time` of 0 switches the timer off). A driver that runs until nothing happens
stops there, or closes the PDC with `Close` and continues until `deadline()` is None.

Datagrams
---------
`Datagram(src, dst, header, payload=b"", traffic_class, entropy, ecn_marked, trimmed, ip_version)` is one packet. The
transport bytes of a packet to send are `header + payload`. The engine leaves both separate, so that the driver copies
the parts of a frame once; `payload` may be a memoryview. A driver that received a packet makes `Datagram(src, dst,
transport_bytes, ecn_marked=…, trimmed=…, entropy=…)`: the bytes begin with the PDS header and end before the trailer,
and `payload` is empty. A driver may also hand over a sent datagram as it is. The engine copies the `entropy` of a
received packet into its ACK. `TrafficClass` is DATA, DATA_RTX (a retransmitted request) or CONTROL; `Trim` is NO,
TRIMMED or LAST_HOP.

Work and events
---------------
`Write(peer, data, key, job_id=1, offset=0, start=0, length=None, mode=Mode.ROD, pid_on_fep=0, resource_index=15,
initiator=16, relative=True, delivery_complete=False, completion_data=None, context=None)` writes `data`, a buffer or a
`memory.FileMemory(open_file)`. An operation above `max_msg_size` travels as several messages and has one completion.
The events are `Completion(context, peer, message_id, length, return_code, error, .ok)`, `RemoteWrite` (completion data
at the target), `Received`, `Cancelled`, `RemoteAccess`, `MessageStored`, `MessageFailed`, `PdcOpened`,
`PdcClosed(…, error)`, `Paused`, `Probed`, `Credited`, `Negotiated` and `NewPdcTimeouts`. `contract` has all classes of
work and events; this package exports those that most drivers use.

A target calls `process = fep.attach(job_id, pid_on_fep=0, indices=(15,))` (with job_id None for absolute addresses),
then `process.register(memory.Region(key, buffer_or_FileMemory, base=0, remote_write=True, remote_read=True,
job_restriction=None))`. `region.fault = ReturnCode.HOST_POISONED` makes each access fail with that code;
`fep.target.fault = function(SesRequest) -> ReturnCode | None` makes chosen requests fail (`[[faults.target]]`).

Packet delivery alone
---------------------
`Pds(address, config, rng, user)` takes any `service.PdsUser` as its SES. The user answers `on_request` with a
`Response(header, gtd)`, with a `Refusal(NackCode)`, or with None and later `pds.respond_late(connection, psn, response,
now)`. `pds.send(message, now)` takes any `service.Outgoing`, of any mode; a target returns read data by
`pds.send_return(pdcid, message, now)`; `pds.unlock(pdcid, now)` releases the lock of a message with `lock`.
`pds.reserve()` takes an even PDCID and the next odd PDCID from the reserved pool, and returns the even PDCID. A peer
can then be told both PDCIDs before the PDCs are opened (`sharp.carriers.uet`). Later `pds.open_reserved(pdcid, …)`
opens each PDC, and `pds.release(even)` gives the PDCIDs back. With `objects=True` headers travel as values
(`Datagram.message`): the behaviour is the same, without packing and parsing.

Harness
-------
`fep.pds.preset(Preset(pdcid=…, start_psn=…))` sets the numbers of the next PDC opened here, in either role; each call
is for one more PDC. `fep.pds.adopt(peer, mode, initiator, Preset(pdcid, peer_pdcid, forward_next, return_next))` makes
an ESTABLISHED PDC in the middle of its life. `fep.pds.counters` has `as_dict()`; `fep.pds.nack_tx` and `nack_rx` count
NACKs by code; `fep.pds.pdcs` holds the PDCs by PDCID. `config.PERSONALITIES` has settings that make an endpoint behave
as another implementation. `states_text.states_markdown()` returns the text of STATES.md.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from uetproto.engine.config import PdsConfig, SesConfig
from uetproto.engine.contract import (
    MICROSECOND,
    MILLISECOND,
    NEVER,
    PDC_MODES,
    SECOND,
    AskClose,
    AskCredit,
    Close,
    Completion,
    Credited,
    Datagram,
    EndpointDriver,
    Engine,
    Event,
    GiveCredit,
    MessageFailed,
    MessageStored,
    Mode,
    Negotiate,
    Negotiated,
    NewPdcTimeouts,
    Noop,
    Paused,
    PdcClosed,
    PdcErrorReason,
    PdcOpened,
    PdsError,
    Probe,
    Probed,
    RemoteWrite,
    TrafficClass,
    Trim,
    Work,
    Write,
)  # fmt: skip
from uetproto.engine.memory import BufferMemory, FileMemory, Region

if TYPE_CHECKING:
    from uetproto.engine.fep import Fep
    from uetproto.engine.pds.pdc_pool import Preset
    from uetproto.engine.pds.service import Refusal, Response
    from uetproto.engine.pds.sublayer import Pds

__all__ = [
    "MICROSECOND", "MILLISECOND", "NEVER", "PDC_MODES", "SECOND", "AskClose", "AskCredit", "BufferMemory", "Close",
    "Completion", "Credited", "Datagram", "EndpointDriver", "Engine", "Event", "Fep", "FileMemory", "GiveCredit",
    "MessageFailed", "MessageStored", "Mode", "Negotiate", "Negotiated", "NewPdcTimeouts", "Noop", "Paused",
    "PdcClosed", "PdcErrorReason", "PdcOpened", "Pds", "PdsConfig", "PdsError", "Preset", "Probe", "Probed",
    "Refusal", "Region", "RemoteWrite", "Response", "SesConfig", "TrafficClass", "Trim", "Work", "Write",
]  # fmt: skip

_MACHINES = {"Fep": "fep", "Pds": "pds.sublayer", "Preset": "pds.pdc_pool", "Refusal": "pds.service",
             "Response": "pds.service"}  # fmt: skip
"""Modules of names that are imported when they are first used: a program that only opens sealed packets has no PDC."""


def __getattr__(name: str) -> Any:
    if name not in _MACHINES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MACHINES[name]}"), name)
