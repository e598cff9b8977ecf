"""The networks of `distributed`: UET, RoCE, SHARP and multicast over the emulator, or a model without packets."""
