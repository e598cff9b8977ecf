"""What the fuzzer found under attack, as text: no scenario can say what an attacker does, but a seed can."""

from collections.abc import Iterator

from uetproto.check.finding import NOT_SHRUNK, Finding


def again(finding: Finding) -> str:
    """The command that plays the episode again, with all its steps."""
    seed, _, episode = finding.seed.partition("/")
    return f"uetproto fuzz {finding.machine} --seed {seed} --episode {episode}"


def to_text(finding: Finding) -> str:
    """How it fails, how to play it again, what it was played with, and its steps (`tss_steps.ACTIONS`)."""
    return "\n".join(_lines(finding)) + "\n"


def _lines(finding: Finding) -> Iterator[str]:
    yield finding.text
    yield ""
    yield f"{len(finding.steps)} steps of {finding.drawn}, {NOT_SHRUNK if finding.given_up else 'after shrinking'};"
    yield f"the whole episode again: {again(finding)}"
    if finding.only_once:
        yield "Only once: played again, the same steps do not fail."
    terms, knobs = finding.knobs
    yield ""
    yield f"draws {finding.draws}"
    yield from (f"{name} = {value}" for name, value in terms.items())
    yield from (f"pds.{name} = {value}" for name, value in knobs.items())
    yield ""
    yield from map(str, finding.steps)
