# SPDX-License-Identifier: GPL-2.0-only
"""This package has the APIs by which programs use the emulator: `fi` is shaped like libfabric (ses.md §13, §14),
`verbs` like libibverbs (roce.md §6, §10), `distributed` like torch.distributed (collectives.md §1).
"""
