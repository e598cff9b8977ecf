"""The nonces that were used, for runs that must prove it: none comes twice under one key (tss.md §14)."""


class Nonces:
    """The nonces used under one key."""

    __slots__ = ("_ledger", "_used")

    def __init__(self, ledger: "NonceLedger") -> None:
        self._ledger = ledger
        self._used: set[bytes] = set()

    def __len__(self) -> int:
        return len(self._used)

    def note(self, nonce: bytes) -> None:
        """A packet is sealed with it."""
        if nonce in self._used:
            self._ledger.repeated += 1
        self._used.add(nonce)


class NonceLedger:
    """All nonces of a world, by packet key. Share one among all endpoints: two of them may have the same key."""

    def __init__(self) -> None:
        self._keys: dict[bytes, Nonces] = {}
        self.repeated = 0
        """Packets sealed with a nonce that was used before under the same key: AES-GCM is broken from the first on."""

    def __repr__(self) -> str:
        return f"<NonceLedger: {len(self)} nonces under {len(self._keys)} keys, {self.repeated} repeated>"

    def __len__(self) -> int:
        return sum(map(len, self._keys.values()))

    def of(self, key: bytes) -> Nonces:
        """Those of one packet key."""
        return self._keys.setdefault(key, Nonces(self))
