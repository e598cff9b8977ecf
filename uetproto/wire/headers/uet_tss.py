# SPDX-License-Identifier: GPL-2.0-only
"""This module holds the UET security header and the entropy header (UE 1.0.1 §3.7, §3.2)."""

from uetproto.wire.fields import Field as F
from uetproto.wire.fields import Header

ENTROPY = Header("entropy", "Entropy header, native IP only", "UE 1.0.1 §3.2", 4, (
    F(16, "entropy",              doc="selects the path"),
    F(16, "rsvd"),
))  # fmt: skip

_SECURITY = (
    F( 1, "rsvd"),
    F( 1, "an",                   doc="association number"),
    F(24, "sdi",                  doc="secure domain id"),
)  # fmt: skip
_COUNTER = (
    F(16, "epoch"),
    F(48, "tsc",                  doc="counter, never used twice under one key"),
)  # fmt: skip

TSS = Header("tss", "Security header", "UE 1.0.1 §3.7", 12, (
    F( 5, "type",                 only=(1,)),
    F( 1, "sp",                   only=(0,), doc="SSI present"),
) + _SECURITY + _COUNTER)  # fmt: skip

TSS_SSI = Header("tss.ssi", "Security header with source id", "UE 1.0.1 §3.7", 16, (
    F( 5, "type",                 only=(1,)),
    F( 1, "sp",                   only=(1,), doc="SSI present"),
) + _SECURITY + (
    F(32, "ssi",                  doc="secure source id"),
) + _COUNTER)  # fmt: skip

ICV_SIZE = 16  # the AES-GCM tag that ends a sealed packet

HEADERS = (ENTROPY, TSS, TSS_SSI)
