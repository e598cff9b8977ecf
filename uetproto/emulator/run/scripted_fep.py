# SPDX-License-Identifier: GPL-2.0-only
"""This module has a fabric endpoint that answers chosen requests as a script says, for scripts with a real SES."""

from collections.abc import Iterable
from typing import Any

from uetproto.emulator.network.scripted_wire import FrameStep
from uetproto.engine.contract import Buffer, Rng
from uetproto.engine.fep import Fep
from uetproto.engine.pds.service import Connection, Refusal, Response
from uetproto.engine.ses.headers import build_response, parse_ses_request
from uetproto.errors import Location
from uetproto.wire.headers.uet_ses import ResponseOpcode, ReturnCode


def never_came(rows: Iterable[tuple[Location, int]]) -> list[str]:
    """Return a list with one error text about all `respond` rows whose PSN did not arrive. If all PSNs arrived, the
    list is empty.

    `rows` has the location and the PSN of each such row. The text names the first row and says how many more there are.
    """
    found = list(rows)
    more = f", and {len(found) - 1} more such rows" if found[1:] else ""
    return [f"{where}: PSN {psn} ({psn:#x}) did not come before the last step{more}" for where, psn in found[:1]]


class ScriptedFep(Fep):
    """A scripted FEP answers some requests as a script says; it discards the data of these requests."""

    def __init__(self, address: int, rng: Rng, **more: Any) -> None:
        super().__init__(address, rng, **more)
        self.script: dict[int, FrameStep] = {}
        """Rows `respond` of the script. The key is the PSN of the request."""
        self.asked: set[int] = set()
        """PSNs of `script` whose requests have arrived."""

    def on_request(
        self, pdc: Connection, psn: int, next_hdr: int, data: Buffer, at: int, payload: Buffer, now: int
    ) -> Response | Refusal | None:
        step = self.script.get(psn)
        if step is None:
            return super().on_request(pdc, psn, next_hdr, data, at, payload, now)
        self.asked.add(psn)
        request = parse_ses_request(data, at, next_hdr)
        good = step.code in (ReturnCode.OK, ReturnCode.NULL) and not step.gtd
        opcode = ResponseOpcode.DEFAULT_RESPONSE if good else ResponseOpcode.RESPONSE
        length = request.request_length if good else 0
        header = build_response(opcode, step.code, request.message_id or 0, request.job_id, length)
        return Response(header, gtd=step.gtd or not good)
