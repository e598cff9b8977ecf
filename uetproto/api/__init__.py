"""What a program sees, over the emulator: `fi` has the shape of libfabric (ses.md §13, §14), `verbs` that of
libibverbs (roce.md §6, §10)."""
