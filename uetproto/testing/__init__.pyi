from uetproto.testing.strategies.captures import captures
from uetproto.testing.strategies.exchanges import ExchangedFrame, PlayedExchange, exchanges
from uetproto.testing.strategies.headers import headers
from uetproto.testing.strategies.messages import messages
from uetproto.testing.strategies.packets import frames, packets
from uetproto.testing.strategies.scenarios import scenarios
from uetproto.testing.strategies.spoilt import Spoilt

__all__ = [
    "ExchangedFrame",
    "PlayedExchange",
    "Spoilt",
    "captures",
    "exchanges",
    "frames",
    "headers",
    "messages",
    "packets",
    "scenarios",
]  # fmt: skip
