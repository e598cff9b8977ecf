# SPDX-License-Identifier: GPL-2.0-only
"""This machine drives packet delivery whose packets TSS seals, with changes of keys and epochs (tss.md §3, §8–10)."""

from typing import Any, NamedTuple

import hypothesis.strategies as st
from hypothesis.stateful import precondition

from uetproto.audit.reader.options import Options
from uetproto.engine.tss.keys import KEY_SIZE, KeyRing
from uetproto.testing.adapters.tss import TssEngine, domain_of
from uetproto.testing.machines.judge import judged_at_port
from uetproto.testing.machines.machine import start, step
from uetproto.testing.machines.pdc import AUDITED, PdcMachine, drawn_knobs
from uetproto.testing.machines.world import ADDRESSES, IMPLEMENTATION, PEER

_PDS_IN_CLEAR = 12
"""Bytes of the PDS header that one of the domains leaves in clear, so that a trimmed packet shows its PSN."""
MOST_EPOCHS = 8
"""Number of times that an end may move to the next epoch, so that no packet on the wire is too old."""


class SecureTerms(NamedTuple):
    """The settings of a secure domain, which its members share."""

    mode: str
    has_ssi: bool = False
    clear: int = 0
    """Number of bytes of the packet behind the security header that are not encrypted."""

    def told(self, sdi: int) -> dict[str, Any]:
        """Return what both ends are told of the domain."""
        return {
            "sdi": sdi, "mode": self.mode, "keys": [(bytes([sdi, an]) * (KEY_SIZE // 2)).hex() for an in (1, 2)],
            "ssis": dict(zip(ADDRESSES, (100, 200), strict=True)) if self.has_ssi else {},
            "servers": [ADDRESSES[PEER]] if self.mode == "client-server" else [],
            "crypto_offset": (16 if self.has_ssi else 12) + self.clear if self.clear else "header",
        }  # fmt: skip


TERMS = (
    SecureTerms("direct"), SecureTerms("cluster"), SecureTerms("client-server"), SecureTerms("direct", has_ssi=True),
    SecureTerms("cluster", has_ssi=True, clear=_PDS_IN_CLEAR), SecureTerms("direct", clear=_PDS_IN_CLEAR),
)  # fmt: skip
"""The domains that a run may use; the SDI of the first is 1."""
_RING = KeyRing({sdi: domain_of(terms.told(sdi)) for sdi, terms in enumerate(TERMS, 1)})


class TssMachine(PdcMachine):
    """This machine drives an implementation of PDS and TSS as a member of a secure domain."""

    name = "tss"
    peer = TssEngine
    sealed = True
    options = judged_at_port(Options(crc="on", keys=_RING, rules=AUDITED))

    @start(
        seed=st.integers(0, 255), sdi=st.integers(1, len(TERMS)), epoch=st.sampled_from((1, 0, 0xFFFC)),
        knobs=drawn_knobs(),
    )  # fmt: skip
    def begin(self, seed: int, knobs: dict[str, Any], sdi: int, epoch: int) -> None:
        """Reset both ends as members of a secure domain."""
        self.epochs = [epoch, epoch]
        self.moves = [0, 0]
        self.ans = [0, 0]
        self.reset_ends(seed, knobs, {"tss": {**TERMS[sdi - 1].told(sdi), "epoch": epoch}})

    @precondition(PdcMachine.is_begun)
    @step(node=st.sampled_from((IMPLEMENTATION, PEER)))
    def switch_key(self, node: int) -> None:
        """An end seals with its other key from now on, which it does once."""
        if "switch_key" in self.adapter().capabilities.work and not self.ans[node]:
            self.world.submit(node, {"op": "switch_key", "an": 1})
            self.ans[node], self.epochs[node] = 1, 0

    @precondition(PdcMachine.is_begun)
    @step(node=st.sampled_from((IMPLEMENTATION, PEER)))
    def next_epoch(self, node: int) -> None:
        """An end seals with the next epoch from now on."""
        if "next_epoch" in self.adapter().capabilities.work and self.moves[node] < MOST_EPOCHS:
            epoch = self.epochs[node] + 1 & 0xFFFF
            self.world.submit(node, {"op": "next_epoch", "epoch": epoch})
            self.epochs[node] = epoch
            self.moves[node] += 1
