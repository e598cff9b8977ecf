# SPDX-License-Identifier: GPL-2.0-only
"""This package asks another implementation of UET whether it follows the protocol: `uetproto conform`.

A conformance test is data (`uet/*.toml`): the packets of our side, and everything that the pages allow the peer to
answer. The packets of our side are made from the header tables and not by an engine, so that wrong ones can be sent.
"""
