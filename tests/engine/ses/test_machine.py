"""Random operations over two and three endpoints: memory, completions and matching are those of the model."""

from hypothesis import settings

from tests.support.ses.machine import SesMachine, ThreeMachine

_PROFILE = settings.default
assert _PROFILE is not None
_DEEP = _PROFILE.max_examples > 10_000

TestTwo = SesMachine.TestCase
TestThree = ThreeMachine.TestCase
TestTwo.settings = settings(max_examples=_PROFILE.max_examples if _DEEP else 60, stateful_step_count=40)
TestThree.settings = settings(max_examples=_PROFILE.max_examples if _DEEP else 40, stateful_step_count=40)
