# SPDX-License-Identifier: GPL-2.0-only
"""Random operations over two and three endpoints: memory, completions and matching are those of the model."""

from hypothesis import settings

from tests.support.effort import effort
from tests.support.ses.machine import SesMachine, ThreeMachine

TestTwo = SesMachine.TestCase
TestThree = ThreeMachine.TestCase
TestTwo.settings = settings(max_examples=effort(16, 60, settings.default.max_examples), stateful_step_count=40)
TestThree.settings = settings(max_examples=effort(12, 40, settings.default.max_examples), stateful_step_count=40)
