# SPDX-License-Identifier: GPL-2.0-only
"""This module has the addresses of endpoints, which `fi_getname` returns and `fi_av_insert` takes (UE Table 2-10,
ses.md §2.3)."""

import struct
from dataclasses import dataclass, field
from enum import IntFlag
from ipaddress import ip_address

from uetproto.api.fi.errors import bits, invalid
from uetproto.api.fi.flags import FepCap


class AddressFlag(IntFlag):
    """This enumeration names the flags of an address. A flag says that a certain field is valid, or of which kind the
    address is."""

    CAPS_VALID = 1 << 0
    FA_VALID = 1 << 1
    PID_VALID = 1 << 2
    INDEX_VALID = 1 << 3
    INITIATOR_VALID = 1 << 4
    ABSOLUTE = 1 << 5
    IPV6 = 1 << 6
    MTU_LIMITED = 1 << 7
    """This flag says that the endpoint takes only messages that fit into one MTU."""


_FORM = struct.Struct(">BBBBHHHHI16s")
_MAGIC, _FORMAT, _VERSION = 0x55, 1, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """An address names one endpoint; a field that is not valid is None. Raises FI_EINVAL for a value that does not fit
    its field.

    The packed form has 32 bytes, big-endian: 0x55, format 1, flags[8], version 0, fep_cap[16], pid_on_fep[16],
    start_index[16], num_indices[16], initiator_id[32], FA[128]. An IPv4 address is in the first four bytes of the FA.
    """

    fa: int | None
    """Fabric address (FA), which is an IPv4 or IPv6 address as a number."""
    ip_version: int = 4
    fep_cap: FepCap | None = None
    pid_on_fep: int | None = None
    start_index: int | None = None
    """First resource index of the endpoint, or None if the address does not name one."""
    num_indices: int = 1
    initiator_id: int | None = None
    absolute: bool = False
    mtu_limited: bool = False
    _hash: int = field(init=False, repr=False, compare=False)
    """Hash of the fields in which the addresses of one vector differ, as each operation looks its peer up."""

    def __hash__(self) -> int:
        return self._hash

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.fa, self.start_index, self.initiator_id)))
        if self.ip_version not in (4, 6):
            raise invalid("ip_version", self.ip_version, "4, 6", id="out-of-range")
        widths = {
            "fa": 32 if self.ip_version == 4 else 128, "fep_cap": 16, "pid_on_fep": 12, "start_index": 12,
            "num_indices": 12, "initiator_id": 32,
        }  # fmt: skip
        for name, width in widths.items():
            value = getattr(self, name)
            if value is not None:
                bits(name, int(value) if isinstance(value, FepCap) else value, width)

    @property
    def flags(self) -> AddressFlag:
        """Return the flags of the address: they say which fields are valid, and of which kind the address is."""
        flag = AddressFlag
        facts = {
            flag.CAPS_VALID: self.fep_cap is not None,
            flag.FA_VALID: self.fa is not None,
            flag.PID_VALID: self.pid_on_fep is not None,
            flag.INDEX_VALID: self.start_index is not None,
            flag.INITIATOR_VALID: self.initiator_id is not None,
            flag.ABSOLUTE: self.absolute,
            flag.IPV6: self.ip_version == 6,
            flag.MTU_LIMITED: self.mtu_limited,
        }
        return flag(sum(bit for bit, is_so in facts.items() if is_so))

    def pack(self) -> bytes:
        """Return the packed form of the address, which has 32 bytes."""
        size = 4 if self.ip_version == 4 else 16
        return _FORM.pack(
            _MAGIC, _FORMAT, self.flags, _VERSION, self.fep_cap or 0, self.pid_on_fep or 0, self.start_index or 0,
            self.num_indices if self.start_index is not None else 0, self.initiator_id or 0,
            (self.fa or 0).to_bytes(size, "big"),
        )  # fmt: skip

    @classmethod
    def unpack(cls, data: bytes) -> "Address":
        """Return the address whose packed form is `data`. Raises FI_EINVAL if `data` is no packed address."""
        if len(data) != _FORM.size:
            raise invalid("address", f"{len(data)} bytes", f"{_FORM.size} bytes", id="wrong-length")
        magic, form, flags, version, cap, pid, index, count, initiator, fa = _FORM.unpack(data)
        if (magic, form, version) != (_MAGIC, _FORMAT, _VERSION):
            start = bytes((_MAGIC, _FORMAT)).hex()
            raise invalid(
                "address", bytes(data[:4]).hex(), f"{start}, flags, version {_VERSION:02x}", id="wrong-address"
            )
        flag = AddressFlag(flags)
        size = 16 if AddressFlag.IPV6 in flag else 4
        if any(fa[size:]):
            raise invalid("address", f"fa {fa.hex()}", "zeros behind an IPv4 address", id="wrong-address")
        has_index = AddressFlag.INDEX_VALID in flag
        return cls(
            fa=int.from_bytes(fa[:size], "big") if AddressFlag.FA_VALID in flag else None,
            ip_version=6 if AddressFlag.IPV6 in flag else 4,
            fep_cap=FepCap(cap) if AddressFlag.CAPS_VALID in flag else None,
            pid_on_fep=pid if AddressFlag.PID_VALID in flag else None,
            start_index=index if has_index else None,
            num_indices=count if has_index else 1,
            initiator_id=initiator if AddressFlag.INITIATOR_VALID in flag else None,
            absolute=AddressFlag.ABSOLUTE in flag,
            mtu_limited=AddressFlag.MTU_LIMITED in flag,
        )

    def __str__(self) -> str:
        """Return the text that `fi_av_straddr` gives, such as fi_addr_uet://10.0.0.1/pid 0/index 15."""
        size = 4 if self.ip_version == 4 else 16
        fa = "?" if self.fa is None else str(ip_address(self.fa.to_bytes(size, "big")))
        return f"fi_addr_uet://{fa}/pid {self.pid_on_fep}/index {self.start_index}"
