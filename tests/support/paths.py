# SPDX-License-Identifier: GPL-2.0-only
"""Where the tests find files: the clone, its golden captures and vectors, and the captures of others."""

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Folder of the clone."""
PCAPS = ROOT / "pcaps"
"""Folder of the golden captures."""
VECTORS = ROOT / "tests" / "vectors" / "uet.json"
"""File of the golden vectors of every form."""
SHARED = Path(os.environ.get("UETPROTO_SHARED", ROOT.parent / "shared"))
"""Folder whose `captures` holds the captures of other implementations; tests over them skip where it is absent."""
