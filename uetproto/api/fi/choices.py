# SPDX-License-Identifier: GPL-2.0-only
"""This module chooses what a call sends: the opcode, the delivery mode, and whether a send is plain, deferrable or a
rendezvous (ses.md §13.4, §13.5)."""

from uetproto.api.fi.address import Address
from uetproto.api.fi.errors import Errno, invalid
from uetproto.api.fi.flags import EpType, FepCap, Order
from uetproto.engine.config import SesConfig
from uetproto.engine.contract import Mode, SendKind
from uetproto.engine.memory import IDEMPOTENT_SAFE
from uetproto.engine.ses.profiles import RUDI
from uetproto.wire.headers.uet_ses import OPCODE_PROFILES, Opcode


def mode_of(ep_type: EpType, order: Order) -> Mode:
    """Return the delivery mode: UUD for a datagram endpoint, ROD if `order` (msg_order) has any bit, and RUD
    otherwise."""
    if ep_type is EpType.DGRAM:
        return Mode.UUD
    return Mode.ROD if order else Mode.RUD


def rma_mode(order: Order, peer: Address, key: int, has_data: bool) -> Mode:
    """Return the delivery mode of an RMA operation. It is RUDI if the key is IDEMPOTENT_SAFE, the peer has the profile
    HPC, and there is neither msg_order nor completion data; otherwise it is the mode that `mode_of` returns."""
    if key & IDEMPOTENT_SAFE and not order and not has_data and peer.fep_cap and int(peer.fep_cap) & RUDI:
        return Mode.RUDI
    return mode_of(EpType.RDM, order)


def send_kind(config: SesConfig, mode: Mode, peer: Address, length: int) -> SendKind:
    """Return whether a send of `length` bytes is plain, deferrable or a rendezvous, by the parameter `large_send`.

    With "auto" a send of at least `rendezvous_threshold` bytes is a rendezvous if it uses ROD and the peer has the
    profile HPC; a send of at least `deferrable_threshold` bytes is deferrable if it uses RUD and the peer has AI Full.
    With "rendezvous" a send of at least `rendezvous_threshold` bytes is a rendezvous if it does not use UUD and the
    peer has the profile HPC or an unknown profile. With "deferrable" a send of at least `deferrable_threshold` bytes is
    deferrable if it uses RUD. All other sends are plain.
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
    """Raise FI_EOPNOTSUPP if the profiles of the peer, its `fep_cap`, do not include an operation (ses.md §4.3). An
    unknown `fep_cap` allows all operations."""
    if peer.fep_cap is None:
        return
    needed = OPCODE_PROFILES[opcode].profiles
    if not int(peer.fep_cap) & needed:
        legal = f"a peer with {' or '.join(p.name or '' for p in needed)}"
        raise invalid(
            "dest",
            f"{opcode.name} to {peer} (fep_cap {int(peer.fep_cap):#06x})",
            legal,
            Errno.FI_EOPNOTSUPP,
            id="not-with-mode",
        )
