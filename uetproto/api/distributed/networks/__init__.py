"""The networks under torch.distributed's shape: UET, RoCE, SHARP and multicast over the emulator, or a model."""
