# SPDX-License-Identifier: GPL-2.0-only
"""This package runs the engines on real links: sockets, a clock, and the loop between them.

`Interface` says where an endpoint is; `fi.Fabric(live=Interface(...))` and `verbs.Network(live=Interface(...))` use it.
"""

from uetproto.live.interface import Interface
from uetproto.live.path import PATHS, Path

__all__ = ["PATHS", "Interface", "Path"]
