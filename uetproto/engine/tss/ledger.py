# SPDX-License-Identifier: GPL-2.0-only
"""Ledgers record used nonces, for runs that must prove that no nonce is used twice under one key (tss.md §14)."""

from collections.abc import Sequence

_HALF = 1 << 47
_M64 = (1 << 64) - 1
_KEYS = 1 << 16
"""Number of packet keys of which a `GrowingLedger` keeps nonces; there may be any number of derived keys."""


class Nonces:
    """This class holds the nonces that were used under one packet key."""

    __slots__ = ("_ledger", "_used")

    def __init__(self, ledger: "NonceLedger") -> None:
        self._ledger = ledger
        self._used: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._used)

    def note(self, nonce: bytes) -> None:
        """Record the nonce of a sealed packet, and count it in `NonceLedger.repeated` if it was used before."""
        if nonce in self._used:
            self._ledger.repeated += 1
        self._used.add(nonce)

    def note_all(self, nonces: Sequence[bytes]) -> None:
        """Record the nonces of packets that were sealed one after the other. They differ from each other."""
        used = self._used
        known = len(used)
        used.update(nonces)
        self._ledger.repeated += known + len(nonces) - len(used)


class NonceLedger:
    """A nonce ledger holds all nonces that were used in a network, in one set for each packet key.

    All endpoints of the network share one ledger, as several endpoints may have the same key.
    """

    def __init__(self) -> None:
        self._keys: dict[bytes, Nonces] = {}
        self.repeated = 0
        """Number of packets with a nonce that was used before under the same key; a single such packet breaks
        AES-GCM."""

    def __repr__(self) -> str:
        return f"<NonceLedger: {len(self)} nonces under {len(self._keys)} keys, {self.repeated} repeated>"

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def of(self, key: bytes, mask: int = 0) -> Nonces:
        """Return the nonces of one packet key; `mask` is the IV mask that belongs to this key (tss.md §6)."""
        return self._keys.setdefault(key, Nonces(self))


class _GrowingNonces(Nonces):
    """The last nonce under one key of each sender: of each nonce prefix and half of the counters (tss.md §4)."""

    __slots__ = ("_count", "_last", "_mask")

    def __init__(self, ledger: NonceLedger, mask: int) -> None:
        super().__init__(ledger)
        self._mask = mask
        self._last: dict[tuple[int, int], int] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def note(self, nonce: bytes) -> None:
        value = int.from_bytes(nonce, "big") ^ self._mask
        sender, tsc64 = (value >> 64, value & _HALF), value & _M64
        last = self._last.get(sender)
        if last is not None and not 0 < (tsc64 - last) & _M64 < 1 << 63:  # serial order, as epochs wrap
            self._ledger.repeated += 1
        self._last[sender] = tsc64
        self._count += 1

    def note_all(self, nonces: Sequence[bytes]) -> None:
        for nonce in nonces:
            self.note(nonce)


class GrowingLedger(NonceLedger):
    """A growing ledger needs little memory, so it suits long runs. It keeps only the last nonce of each sender, and
    counts the next nonce if it is not greater than the last one.

    So it counts every repeated nonce, as a `NonceLedger` does, because a repeated nonce is never greater.
    """

    def of(self, key: bytes, mask: int = 0) -> Nonces:
        found = self._keys.get(key)
        if found is None:
            if len(self._keys) >= _KEYS:
                del self._keys[next(iter(self._keys))]
            found = self._keys[key] = _GrowingNonces(self, mask)
        return found
