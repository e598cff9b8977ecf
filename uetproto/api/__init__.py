"""This package has the APIs of programs over the emulator: `fi` is shaped like libfabric (ses.md §13, §14), `verbs`
like libibverbs (roce.md §6, §10).
"""
