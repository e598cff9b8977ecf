# SPDX-License-Identifier: GPL-2.0-only
"""Named tuples of headers: what a change of a table asks of the code that uses them (docs/architecture.md)."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import uetproto
from uetproto.wire import tuples
from uetproto.wire.codec import class_name
from uetproto.wire.forms import FORMS

ROOT = Path(uetproto.__file__).parents[1]
MESSAGES = "uetproto/engine/pds/messages.py"


def test_every_form_has_a_class() -> None:
    classes = {form: getattr(tuples, class_name(header)) for form, header in FORMS.items()}
    assert len(set(classes.values())) == len(FORMS)
    for form, made in classes.items():
        assert (made.form, made.size, made._fields) == (form, FORMS[form].size, FORMS[form].names)
    with pytest.raises(AttributeError, match="NoHeader"):
        _ = tuples.NoHeader  # type: ignore[attr-defined]


class Copy:
    """A copy of the package whose tables are changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / "uetproto", folder / "uetproto", ignore=shutil.ignore_patterns("__pycache__"))

    def run(self, *arguments: str) -> str:
        command = [sys.executable, *arguments]
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    def change(self, old: str, new: str) -> None:
        """Replace rows of the PDS tables, and generate the declarations again."""
        tables = self.folder / "uetproto/wire/headers/uet_pds.py"
        text = tables.read_text(encoding="utf-8")
        assert text.count(old) == 1
        tables.write_text(text.replace(old, new), encoding="utf-8")
        declared = self.run("-c", "from uetproto.wire.tuples_stub import tuples_stub; print(tuples_stub(), end='')")
        (self.folder / "uetproto/wire/tuples.pyi").write_text(declared, encoding="utf-8")

    def type_errors(self) -> list[tuple[str, str]]:
        """Return the line and the text of each error in `MESSAGES`."""
        told = self.run(
            "-m", "mypy", "--strict", "--follow-imports=skip", "--no-error-summary", "--hide-error-codes",
            "--allow-any-generics", "--no-warn-return-any", "--allow-subclassing-any", "--allow-untyped-decorators",
            "--cache-dir", os.devnull, "uetproto/wire/tuples.pyi", MESSAGES,
        )  # fmt: skip
        lines = (self.folder / MESSAGES).read_text(encoding="utf-8").splitlines()
        errors = [line.split(":", 3) for line in told.splitlines() if ": error: " in line]
        return [(lines[int(number) - 1].strip(), text.strip()) for _, number, _, text in errors]


def test_splitting_a_field_of_a_table(tmp_path: Path) -> None:
    """Split reserved fields change only what takes a header apart by position; any other split is a type error."""
    copy = Copy(tmp_path)
    copy.change(
        'F( 3, "rsvd2"),\n            F( 8, "nack_code"',
        'F( 1, "rsvd2"), F( 2, "rsvd3"),\n            F( 8, "nack_code"',
    )
    assert copy.type_errors() == []
    assert copy.run("-c", "from uetproto.engine.pds.messages import Nack, parse;"
                    "nack = parse(Nack(3, 0, 0, 1, 4, 5, 6, 7).pack());"
                    "print(nack.code, nack.psn, nack.spdcid, nack.dpdcid, nack.payload)") == "3 4 5 6 7\n"  # fmt: skip

    copy.change('F( 2, "rsvd"),\n        F( 1, "retx",', 'F( 1, "rsvd"), F( 1, "rsvd3"),\n        F( 1, "retx",')
    ((line, text),) = copy.type_errors()
    assert "PdsRudReqHeader.unpack(data)" in line
    assert "12 expected, 11 provided" in text or "11 expected, 12 provided" in text

    copy.change('F( 8, "vendor_code"),', 'F( 4, "vendor_code"), F( 4, "vendor_subcode"),')
    assert [line for line, _ in copy.type_errors()][:-1] == ["return PdsNackHeader.pack("]
