# SPDX-License-Identifier: GPL-2.0-only
"""This module has the Construct schema `SHARP`, which parses and builds a SHARP message, over UET or RoCE."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from construct import Array, Bytes, ConstructError, Int16ub, MappingError

from uetproto.errors import identified
from uetproto.schemas.header import numbers
from uetproto.schemas.packet import Given, PacketStruct
from uetproto.wire.fields import Header
from uetproto.wire.forms import FORMS, Candidates
from uetproto.wire.headers import sharp

_BODIES = tuple(dict.fromkeys(sharp.BODIES.values()))


def _body_size(context: Any) -> int:
    """Return the number of bytes of `payload_len` that the body and the ranks take."""
    body = context.get("body")
    return 0 if body is None else FORMS[body["_form"]].size + 2 * len(context.get("ranks") or ())


class SharpStruct(PacketStruct):
    """This construct is a SHARP message: the base header as `sharp`, the extensions `udh` and `tgt`, the `body` of its
    opcode, the `ranks` of a GROUP_JOIN_REQ, the vector as `payload`, and the `pad` to whole words.

    The fields flags, ext_words, payload_len and member_count are computed if they are not given.
    """

    def __init__(self) -> None:
        rest = {
            "ranks": Array(lambda context: self._ranks(context), Int16ub),
            "payload": Bytes(lambda context: max(0, context.sharp.payload_len - _body_size(context))),
            "pad": Bytes(lambda context: -context.sharp.payload_len % 4),
        }
        parts = {"sharp": (sharp.SHARP,), "udh": (sharp.EXT_UDH,), "tgt": (sharp.EXT_TGT,), "body": _BODIES}
        super().__init__((sharp.SHARP,), parts, **rest)

    @staticmethod
    def _ranks(context: Any) -> int:
        body = context.get("body")
        return int(body.member_count) if body is not None and body["_form"] == sharp.JOIN_REQ.name else 0

    def following(
        self, header: Header, fields: Mapping[str, Any], path: str, parts: Iterable[str] = ()
    ) -> list[Candidates]:
        if header is not sharp.SHARP:
            return []
        return [(following,) for following in sharp.following(fields.get("opcode", 0), fields["flags"])]

    def prepared(self, given: Given, packet: Mapping[str, Any], path: str) -> None:
        base, ranks = given.get("sharp"), packet.get("ranks")
        if not isinstance(ranks, Sequence | None) or isinstance(ranks, str | bytes):
            raise identified(
                MappingError(f"ranks are a list of numbers, not {type(ranks).__name__}", path=f"{path} -> ranks"),
                "wrong-type",
            )
        ranks = ranks or ()
        if base is None:
            return
        if "body" in given and "opcode" not in base:
            raise identified(
                ConstructError(
                    "the opcode is missing, which says what body this is", path=f"{path} -> sharp -> opcode"
                ),
                "header-order",
            )
        flags = (sharp.Flag.UDH if "udh" in given else 0) | (sharp.Flag.TGT if "tgt" in given else 0)
        base.setdefault("flags", int(flags))
        known = numbers("sharp", {k: base[k] for k in ("flags", "opcode") if k in base}, f"{path} -> sharp")
        base.setdefault("ext_words", sharp.ext_words_of(known["flags"]))
        body = sharp.BODIES.get(known.get("opcode", 0))  # type: ignore[call-overload]  # any number may be given
        size = (body.size if body is not None else 0) + 2 * len(ranks) + len(self.payload_of(packet, path))
        base.setdefault("payload_len", size)
        if body is sharp.JOIN_REQ and "body" in given:
            given["body"].setdefault("member_count", len(ranks))

    def ending(self, packet: Mapping[str, Any], whole: dict[str, Any], context: Any, path: str) -> None:
        whole["ranks"] = list(packet.get("ranks") or ())
        whole["payload"] = self.payload_of(packet, path)
        pad = self.bytes_of(packet, "pad", path)
        whole["pad"] = bytes(-whole["sharp"].payload_len % 4) if pad is None else pad
        there = _body_size(whole) + len(whole["payload"])
        if whole["sharp"].payload_len != there:
            reason = f"{whole['sharp'].payload_len} is not the {there} bytes of body, ranks and payload"
            raise identified(ConstructError(reason, path=f"{path} -> sharp -> payload_len"), "trailer-impossible")


SHARP = SharpStruct()
