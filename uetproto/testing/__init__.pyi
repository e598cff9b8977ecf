from uetproto.testing.strategies.headers import headers
from uetproto.testing.strategies.packets import frames, packets
from uetproto.testing.strategies.spoilt import Spoilt

__all__ = ["Spoilt", "frames", "headers", "packets"]
