"""What a program sees, over the emulator: `uetproto.api.fi` has the shape of libfabric (ses.md §13, §14)."""
