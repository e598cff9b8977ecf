"""The header tables as Construct schemas: one of each form, and whole packets of UET, RoCE and SHARP.

`SCHEMAS["pds.ack"].parse(data)` reads a header. `UET` parses and builds what follows UDP port 4793, `NATIVE` what
follows IP protocol 253, `ROCE` what follows UDP port 4791, `LRH` a packet of native InfiniBand, and `SHARP` a SHARP
message, whatever carried it. All are ordinary constructs: they can be members of a `Struct`, be repeated and nested.
"""

from uetproto.schemas.header import SCHEMAS
from uetproto.schemas.roce import LRH, ROCE
from uetproto.schemas.sharp import SHARP
from uetproto.schemas.uet import NATIVE, UET
from uetproto.schemas.values import Code, Flags

__all__ = ["LRH", "NATIVE", "ROCE", "SCHEMAS", "SHARP", "UET", "Code", "Flags"]
