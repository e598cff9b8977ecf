"""Parameters: every field has a limit, a docstring, and refuses what is not legal (pds.md §17, ses.md §16, §17)."""

import ast
import inspect
from dataclasses import fields
from typing import Any

import pytest

from uetproto.engine import PdsConfig, SesConfig, config
from uetproto.errors import LocalError


@pytest.mark.parametrize("kind", [PdsConfig, SesConfig])
def test_every_field_is_documented_and_limited(kind: Any) -> None:
    (node,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(node, ast.ClassDef)
    documented = {
        first.target.id
        for first, second in zip(node.body, node.body[1:], strict=False)
        if isinstance(first, ast.AnnAssign) and isinstance(first.target, ast.Name) and isinstance(second, ast.Expr)
    }
    assert documented == {field.name for field in fields(kind)} == set(config._LIMITS[kind.__name__])


@pytest.mark.parametrize(("name", "value", "legal"), [
    ("mp_range", 100, "128 … 32640 in steps of 128"), ("mp_range", 129, "128"), ("default_mpr", 0, "1 … 255"),
    ("rto_init_time", -1, "0 …"), ("rto_init_time", 1.5, "0 …"), ("max_rto_retx_cnt", 16, "0 … 15"),
    ("ack_cc", "sometimes", "when_gap, always, never"), ("ar_on_eom", 1, "True, False"),
    ("default_mpr", True, "1 … 255"), ("entropy_values", 3, "1, 2, 4"), ("ack_cc", [], "when_gap"),
])  # fmt: skip
def test_illegal_values_are_named(name: str, value: Any, legal: str) -> None:
    with pytest.raises(LocalError, match=f"{name}: .*{legal}"):
        PdsConfig(**{name: value})


def test_illegal_mtu() -> None:
    with pytest.raises(LocalError, match="payload_mtu: 1500 is not legal; legal: 1024, 2048, 4096, 8192"):
        SesConfig(payload_mtu=1500)
