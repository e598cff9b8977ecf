# SPDX-License-Identifier: GPL-2.0-only
"""This package plays one side of a capture to a live peer, and says where the peer answers otherwise.

`frames.py` sends the packets of the capture with other PDCIDs, PSNs and CRCs. `messages.py` reads the messages of a
side, which an engine then sends anew. Neither knows sockets; captures are read as streams, twice (`uetproto replay`).
"""
