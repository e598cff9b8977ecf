"""Sans-IO engines of Ultra Ethernet Transport. This text is the interface that drivers (emulator, live) rely on.

The five calls
--------------
`Fep(address, rng, *, pds=PdsConfig(), ses=SesConfig(), ip_version=4)` is one fabric endpoint and an `Engine`::

    fep.receive(datagram, now)     a packet from the network; never raises on bytes from outside
    fep.submit(work, now)          Write(...), Close(peer=...), AskClose(pdcid=...), and the control packets Noop,
                                   Negotiate, Probe, AskCredit, GiveCredit; LocalError for what cannot be
    fep.poll(now, limit=NEVER)     -> list[Datagram] to send now; runs due timers. Call it after every receive and
                                   submit and at deadline(); `limit` bounds first transmissions, the rest stays for
                                   the next poll (a driver may pull as fast as its link sends)
    fep.deadline()                 -> int | None: when poll must be called at the latest
    fep.events()                   -> list[Event], drained

`now` is an integer of picoseconds and never goes back. `rng` is a seeded `random.Random` (only `getrandbits` and
`random` are used): one seed, one trace. Addresses are integers.

`fep.quiescent` is True when nothing is in flight, queued or waiting to be answered: only idle timers may be armed
(PDCs close after `PdsConfig.idle_time`, 60 s; 0 switches that off). A driver that runs "until nothing happens" stops
there, or closes the PDC with `Close` and goes on until `deadline()` is None.

Datagrams
---------
`Datagram(src, dst, header, payload=b"", traffic_class, entropy, ecn_marked, trimmed, ip_version)`. To be sent: the
transport bytes are `header + payload`, handed apart so that the driver joins all parts of the frame once; payload may
be a memoryview. On receipt: `Datagram(src, dst, transport_bytes, ecn_marked=…, trimmed=…, entropy=…)`, from the PDS
header on, trailer stripped; bytes or memoryview, with `payload` empty. Handing on a sent datagram as it is works as
well. `entropy` of a received one is echoed in its ACK.
`TrafficClass`: DATA, DATA_RTX (retransmitted request), CONTROL. `Trim`: NO, TRIMMED, LAST_HOP.

Work and events
---------------
`Write(peer, data, key, job_id=1, offset=0, start=0, length=None, mode=Mode.ROD, pid_on_fep=0, resource_index=15,
initiator=16, relative=True, delivery_complete=False, completion_data=None, context=None)`; `data` is a buffer or a
`memory.FileMemory(open_file)`. More than `max_msg_size` goes as several messages, with one completion.
Events: `Completion(context, peer, message_id, length, return_code, error, .ok)`, `RemoteWrite` (completion data at the
target), `MessageStored`, `MessageFailed`, `PdcOpened`, `PdcClosed(…, error)`, `Paused`, `Probed`, `Credited`,
`Negotiated`, `NewPdcTimeouts`.

Target set-up: `process = fep.attach(job_id, pid_on_fep=0, indices=(15,))` (job_id None: absolute addresses), then
`process.register(memory.Region(key, buffer_or_FileMemory, base=0, remote_write=True, remote_read=True,
job_restriction=None))`. `region.fault = ReturnCode.HOST_POISONED` makes each access fail so;
`fep.target.fault = function(SesRequest) -> ReturnCode | None` lets chosen requests fail (`[[faults.target]]`).

Packet delivery alone
---------------------
`Pds(address, config, rng, user)` takes any `service.PdsUser` as its SES: it answers `on_request` with a
`Response(header, gtd)`, a `Refusal(NackCode)`, or None and later `pds.respond_late(connection, psn, response, now)`.
`pds.send(message, now)` takes any `service.Outgoing`, of any mode; a target sends read data back by
`pds.send_return(pdcid, message, now)`; `pds.unlock(pdcid, now)` takes back the lock of a message with `lock`.
`even = pds.reserve()` takes two PDCIDs from the reserved pool, which `pds.open_reserved(pdcid, …)` opens later and
`pds.release(even)` returns: a peer can be told beforehand which PDCs will come to it (`sharp_uet`).
With `objects=True` headers travel as values (`Datagram.message`): the same behaviour without packing and parsing.

Harness
-------
`fep.pds.preset(Preset(pdcid=…, start_psn=…))` names the next PDC opened here, in either role (queue of presets).
`fep.pds.adopt(peer, mode, initiator, Preset(pdcid, peer_pdcid, forward_next, return_next))` makes an ESTABLISHED PDC
in the middle of its life. `fep.pds.counters` (`as_dict()`), `fep.pds.nack_tx` and `nack_rx` (by code), `fep.pds.pdcs`
(by PDCID). `config.PERSONALITIES` has settings that make an endpoint behave as another implementation.
`states_text.states_markdown()` is the text of STATES.md.
"""

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
    Port,
    Probe,
    Probed,
    RemoteWrite,
    TrafficClass,
    Trim,
    Work,
    Write,
)  # fmt: skip
from uetproto.engine.fep import Fep
from uetproto.engine.memory import BufferMemory, FileMemory, Region
from uetproto.engine.pds.pdc_pool import Preset
from uetproto.engine.pds.service import Refusal, Response
from uetproto.engine.pds.sublayer import Pds

__all__ = [
    "MICROSECOND", "MILLISECOND", "NEVER", "PDC_MODES", "SECOND", "AskClose", "AskCredit", "BufferMemory", "Close",
    "Completion", "Credited", "Datagram", "Engine", "Event", "Fep", "FileMemory", "GiveCredit", "MessageFailed",
    "MessageStored", "Mode", "Negotiate", "Negotiated", "NewPdcTimeouts", "Noop", "Paused", "PdcClosed",
    "PdcErrorReason", "PdcOpened", "Pds", "PdsConfig", "PdsError", "Port", "Preset", "Probe", "Probed", "Refusal",
    "Region", "RemoteWrite", "Response", "SesConfig", "TrafficClass", "Trim", "Work", "Write",
]  # fmt: skip
