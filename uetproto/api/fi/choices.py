"""This module chooses what the wire carries for a call: opcode, delivery mode, kind of a send (ses.md §13.4, §13.5)."""

from uetproto.api.fi.address import Address
from uetproto.api.fi.errors import Errno, invalid
from uetproto.api.fi.flags import EpType, FepCap, Order
from uetproto.engine.config import SesConfig
from uetproto.engine.contract import Mode, SendKind
from uetproto.engine.memory import IDEMPOTENT_SAFE
from uetproto.engine.ses.profiles import RUDI
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, Opcode


def mode_of(ep_type: EpType, order: Order) -> Mode:
    """Return the delivery mode: UUD for a datagram endpoint, ROD if msg_order has any bit, else RUD."""
    if ep_type is EpType.DGRAM:
        return Mode.UUD
    return Mode.ROD if order else Mode.RUD


def rma_mode(order: Order, peer: Address, key: int, has_data: bool) -> Mode:
    """Return the delivery mode of an RMA operation: RUDI if the key is IDEMPOTENT_SAFE, the peer has HPC,
    and there is no msg_order and no completion data; otherwise the mode that `mode_of` returns."""
    if key & IDEMPOTENT_SAFE and not order and not has_data and peer.fep_cap and int(peer.fep_cap) & RUDI:
        return Mode.RUDI
    return mode_of(EpType.RDM, order)


def send_kind(config: SesConfig, mode: Mode, peer: Address, length: int) -> SendKind:
    """Return the kind of a send of `length` bytes, by the parameter `large_send`.

    With "auto" a send of at least the threshold of its kind is a rendezvous on ROD to a peer with HPC, and deferrable
    on RUD to a peer with AI Full. If `large_send` names a kind, a rendezvous still needs HPC, and a deferrable send
    needs RUD. All other sends are plain.
    """
    caps = peer.fep_cap
    rendezvous = length >= config.rendezvous_threshold
    deferrable = length >= config.deferrable_threshold and mode is Mode.RUD
    match config.large_send:
        case "auto":
            rendezvous = rendezvous and mode is Mode.ROD and bool(caps and FepCap.HPC in caps)
            deferrable = deferrable and bool(caps and FepCap.AI_FULL in caps)
        case "rendezvous":
            rendezvous = rendezvous and mode is not Mode.UUD and (caps is None or FepCap.HPC in caps)
            deferrable = False
        case "deferrable":
            rendezvous = False
        case _:
            return SendKind.PLAIN
    if rendezvous:
        return SendKind.RENDEZVOUS
    return SendKind.DEFERRABLE if deferrable else SendKind.PLAIN


def check_peer_can(opcode: Opcode, peer: Address) -> None:
    """Raise FI_EOPNOTSUPP if the `fep_cap` of the peer lacks the operation (ses.md §4.3); if unknown, allow all."""
    if peer.fep_cap is None:
        return
    needed = OPCODE_PROFILES[opcode].profiles
    if not int(peer.fep_cap) & needed:
        legal = f"a peer with {' or '.join(p.name or '' for p in needed)}"
        raise invalid("dest", f"{opcode.name} to {peer} (fep_cap {int(peer.fep_cap):#06x})", legal, Errno.FI_EOPNOTSUPP)
