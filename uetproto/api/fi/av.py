# SPDX-License-Identifier: GPL-2.0-only
"""This module has address vectors, with the calls `fi_av_open`, `fi_av_insert` and `fi_av_lookup` (ses.md §2.3,
§14.2)."""

from uetproto.api.fi.address import Address
from uetproto.api.fi.errors import FiObject, invalid
from uetproto.api.fi.flags import ADDR_UNSPEC
from uetproto.engine.contract import EndpointDriver


class AddressVector(FiObject):
    """An address vector maps handles (`fi_addr_t`) to addresses of peers; a handle is valid until its address is
    removed."""

    kind = "av"

    def __init__(self, driver: EndpointDriver, ip_version: int) -> None:
        super().__init__(driver)
        self._ip_version = ip_version
        self._entries: dict[int, Address] = {}
        self._handles: dict[Address, int] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def insert(self, address: Address | bytes) -> int:
        """`fi_av_insert` adds an address, given as an `Address` or as its 32 bytes, and returns its handle
        (`fi_addr_t`). An address that the vector already has keeps its handle.

        Raises FI_EINVAL for bytes that are no address, for an address without fabric address, and for an address whose
        IP version is not the IP version of the vector.
        """
        self._usable()
        if isinstance(address, bytes | bytearray | memoryview):
            address = Address.unpack(bytes(address))
        elif not isinstance(address, Address):
            raise invalid("address", address, "an Address, or its 32 bytes", id="wrong-length")
        if address.fa is None:
            raise invalid("address", str(address), "an address whose fabric address is valid", id="wrong-address")
        if address.ip_version != self._ip_version:
            raise invalid(
                "address", str(address), f"an address of IPv{self._ip_version}, as that of the domain",
                id="wrong-address"
            )  # fmt: skip
        handle = self._handles.get(address)
        if handle is None:
            handle = self._next
            self._next += 1
            self._entries[handle] = address
            self._handles[address] = handle
        return handle

    def remove(self, handle: int) -> None:
        """`fi_av_remove` removes the address of a handle from the vector. Raises FI_EINVAL for an unknown handle."""
        del self._handles[self.lookup(handle)]
        del self._entries[handle]

    def lookup(self, handle: int | Address, name: str = "fi_addr") -> Address:
        """`fi_av_lookup` returns the address of a handle. If `handle` is itself an address of the vector, it is
        returned. Raises FI_EINVAL for anything else; `name` is the argument's name in the error."""
        self._usable()
        if isinstance(handle, Address):
            if handle in self._handles:
                return handle
            raise invalid(
                name, str(handle), "an address that is in the address vector (av.insert)", id="not-registered"
            )
        if type(handle) is not int or handle not in self._entries:
            legal = f"a handle from av.insert: {', '.join(map(str, list(self._entries)[:8])) or 'none yet'}"
            raise invalid(name, handle, legal, id="wrong-address")
        return self._entries[handle]

    def straddr(self, handle: int) -> str:
        """`fi_av_straddr` returns the address of a handle as text."""
        return str(self.lookup(handle))

    def source_of(self, fa: int, initiator: int) -> int:
        """Return the handle of the sender of a message: the peer with the fabric address `fa` and the initiator ID
        `initiator`. Return ADDR_UNSPEC if the vector has no such peer (ses.md §2.5)."""
        for handle, address in self._entries.items():
            if address.fa == fa and address.initiator_id == initiator:
                return handle
        return ADDR_UNSPEC
