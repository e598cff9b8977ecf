# SPDX-License-Identifier: GPL-2.0-only
"""RoCEv2 carries the InfiniBand transport over UDP: queue pairs of RC, UC and UD, requester and responder."""
