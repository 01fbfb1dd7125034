"""Whatever a test makes lastgood say: each command of lastgood in it can be typed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest

from lastgood import errors
from lastgood.written import redact_command

_BEFORE_THE_VERB = "--debug"
_OF_A_FILE = "--policy"
"""The one option whose file the command line looks for: a test may speak of one that is not there."""

_typed: set[tuple[str, ...]] = set()
"""What was parsed before, in this process."""


@pytest.fixture(autouse=True)
def _commands_can_be_typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Parse every command that is put together, whether or not the test looks at it."""
    made: list[tuple[str, ...]] = []

    def noted(words: Sequence[str]) -> list[str]:
        made.append(tuple(words))
        return redact_command(words)

    monkeypatch.setattr(errors, "redact_command", noted)
    yield
    fresh = [words for words in dict.fromkeys(made) if words not in _typed and words[0] != _BEFORE_THE_VERB]
    if fresh:
        from printed import parsed  # else the command line were imported where nothing is said

        for words in fresh:
            there = [__file__ if before == _OF_A_FILE else word for before, word in pairwise(("", *words))]
            parsed(shlex.join(("lastgood", *there)))
            _typed.add(words)
