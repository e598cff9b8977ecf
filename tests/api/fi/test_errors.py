# SPDX-License-Identifier: GPL-2.0-only
"""libfabric's numbers, and what a return code becomes (ses.md §13.3, §9.5)."""

import os

import pytest

from uetproto import LocalError
from uetproto.api import fi
from uetproto.api.fi.errors import class_of, errno_of, name_of

SYSTEM = ("ENOENT", "EIO", "EAGAIN", "EACCES", "EBUSY", "EINVAL", "ENOSPC", "EMSGSIZE", "EOPNOTSUPP", "EADDRINUSE",
          "ETIMEDOUT", "ECANCELED")  # fmt: skip
OWN = {"FI_EOPBADSTATE": 258, "FI_EBADFLAGS": 260, "FI_EDOMAIN": 262, "FI_ENOCQ": 263, "FI_ETRUNC": 265,
       "FI_ENOKEY": 266, "FI_ENOAV": 267, "FI_EOVERRUN": 268}  # fmt: skip
"""rdma/fi_errno.h: from 256 on."""

MAPPING = {
    "BAD_MKEY": "FI_ENOKEY", "PERM_VIOLATION": "FI_EACCES", "BAD_JOB_ID": "FI_EACCES", "CANCELLED": "FI_ECANCELED",
    "UNSUPPORTED_OP": "FI_EOPNOTSUPP", "TOO_LONG": "FI_ETRUNC",
}  # fmt: skip
CLASSES = {"NULL": "ok", "OK": "ok", "BAD_GENERATION": "now", "DISABLED_GEN": "back", "NO_MATCH": "back",
           "UNCOR_TRNSNT": "back"}  # fmt: skip


def test_numbers() -> None:
    import errno

    assert {f"FI_{name}": getattr(errno, name) for name in SYSTEM} | OWN == {e.name: e.value for e in fi.Errno}
    assert os.strerror(fi.Errno.FI_EAGAIN) == "Resource temporarily unavailable"


@pytest.mark.parametrize("code", fi.ReturnCode, ids=lambda code: code.name)
def test_return_codes(code: fi.ReturnCode) -> None:
    assert errno_of(code).name == MAPPING.get(code.name, "FI_EIO")
    assert errno_of(code, strict_ref_errors=True) is fi.Errno.FI_EIO
    assert class_of(code).value == CLASSES.get(code.name, "perm")
    assert name_of(code) == code.name


def test_codes_without_a_name() -> None:
    assert (errno_of(0x30), class_of(0x30), name_of(0x30)) == (fi.Errno.FI_EIO, fi.RetryClass.PERM, "0x30")


def test_the_error_is_one_of_the_caller() -> None:
    assert issubclass(fi.FiError, LocalError)
    error = fi.FiError(fi.Errno.FI_EINVAL, "tag: 1")
    assert (error.errno, str(error)) == (22, "tag: 1 [FI_EINVAL]")
