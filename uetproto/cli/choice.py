# SPDX-License-Identifier: GPL-2.0-only
"""This module has the type of options whose value is one of some names."""

from typing import Any

import click

from uetproto.errors import listed, similar


class Choice(click.Choice[str]):
    """This type accepts one of its names, and tells similar names for any other value."""

    def __init__(self, names: Any) -> None:
        super().__init__(tuple(names))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value not in self.choices:
            self.fail(
                f"{value!r} is not legal{similar(value, self.choices)}; legal: {listed(self.choices)}", param, ctx
            )
        return super().convert(value, param, ctx)
