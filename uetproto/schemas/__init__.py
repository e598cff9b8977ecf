# SPDX-License-Identifier: GPL-2.0-only
"""This package has Construct schemas of every header, and of whole packets of UET, RoCE and SHARP.

`SCHEMAS["pds.ack"].parse(data)` reads a header. Five schemas parse and build packets:

- `UET`: the bytes that follow UDP port 4793,
- `NATIVE`: the bytes that follow IP protocol 253,
- `ROCE`: the bytes that follow UDP port 4791,
- `LRH`: a packet of native InfiniBand,
- `SHARP`: a SHARP message, over UET or RoCE.

All are ordinary constructs: they can be members of a `Struct`, be repeated and nested.
"""

from uetproto.schemas.header import SCHEMAS
from uetproto.schemas.roce import LRH, ROCE
from uetproto.schemas.sharp import SHARP
from uetproto.schemas.uet import NATIVE, UET
from uetproto.schemas.values import Code, Flags

__all__ = ["LRH", "NATIVE", "ROCE", "SCHEMAS", "SHARP", "UET", "Code", "Flags"]
