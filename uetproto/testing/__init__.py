"""This package has Hypothesis strategies for everything on the wire, with which any implementation can be tested.

    from hypothesis import given
    from uetproto.testing import packets

    @given(packets(mode="rud"))
    def test_my_stack(packet): ...

docs/testing.md describes the strategies. Hypothesis is installed by the extra `testing`; a name is imported at its
first use.
"""

from importlib import import_module as _import_module
from importlib.util import find_spec as _find_spec

from uetproto.errors import missing_package as _missing_package

if _find_spec("hypothesis") is None:
    raise _missing_package(__name__, "hypothesis", "testing")

_PLACES = {
    "strategies.captures": ("captures",),
    "strategies.exchanges": ("PlayedExchange", "ExchangedFrame", "exchanges"),
    "strategies.headers": ("headers",),
    "strategies.messages": ("messages",),
    "strategies.packets": ("frames", "packets"),
    "strategies.scenarios": ("scenarios",),
    "strategies.spoilt": ("Spoilt",),
}
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


def __getattr__(name: str) -> object:
    for place, names in _PLACES.items():
        if name in names:
            globals()[name] = found = getattr(_import_module(f"{__name__}.{place}"), name)
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
