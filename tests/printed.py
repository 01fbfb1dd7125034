"""The commands of lastgood that its answers name: found, parsed by the real command line, and run as a person does."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import click
import pytest

from lastgood.asked import ALLOWED, FORESEEING, LOOKING, PAYING, PREDICTING
from lastgood.cli.main import VERBS, lastgood, main

EVIDENCE = (
    "sinks",
    "kafka",
    "kafka_config",
    "topics",
    "subscribe_pattern",
    "txn_app_id",
    "topic_is_the_same",
    "source_replays",
)
START = ("spark", "fail_on_data_loss")
_COMMAND = re.compile(rf"(?:^|(?<=[:;`,] )|(?<=`)|(?<=, or )|(?<= with: ))lastgood (?:{'|'.join(VERBS)})\b[^`\n]*")
_PLACEHOLDER = re.compile(r"(?:--)?[A-Z][A-Z_]+(?:[:,=/][A-Z_…]+)*|…")
_CHANGING = ("apply", "undo", "recover", "run", "demo", "load", "key")


@dataclass(frozen=True)
class Printed:
    """A command that an answer names."""

    line: str
    verb: str
    options: dict[str, Any] = field(hash=False)
    """As click parses them."""

    @property
    def words(self) -> list[str]:
        """What a shell makes of it, without the name of the program."""
        return shlex.split(self.line)[1:]

    @property
    def can_be_run(self) -> bool:
        """Whether a person need fill nothing in."""
        return not any(_PLACEHOLDER.fullmatch(word) for word in self.words if not word.startswith("FAILURE_"))

    @property
    def only_reads(self) -> bool:
        return self.verb not in _CHANGING and not self.line.startswith(
            ("lastgood backup create", "lastgood backup res")
        )


@dataclass(frozen=True)
class Answer:
    """What a command said."""

    words: tuple[str, ...]
    code: int
    out: str

    @property
    def said(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    def printed(self) -> list[Printed]:
        """Every command that it names, each once."""
        return [parsed(line) for line in dict.fromkeys(_lines(self.out))]


def run(*words: str) -> Answer:
    """Run a command line in this process."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out), pytest.raises(SystemExit) as ended:
        main(words)
    return Answer(words, int(ended.value.code or 0), out.getvalue())


def parsed(line: str) -> Printed:
    """A command as the command line takes it, or a failed test."""
    try:
        verb, *rest = shlex.split(line)[1:]
        command = lastgood.get_command(click.Context(lastgood), verb)
        while isinstance(command, click.Group):
            command = command.commands[rest.pop(0)]
        assert command is not None
        with command.make_context(verb, rest) as context:
            return Printed(line, verb, context.params)
    except (click.ClickException, ValueError, KeyError, IndexError) as error:
        pytest.fail(f"no command that can be typed: {line}: {error!r}")


def require_same(answer: Answer, asked: Printed, printed: Printed) -> None:
    """See that a printed command looks where the verb looked that printed it, and may cost as much."""
    told = f"{' '.join(answer.words)}\nprinted: {printed.line}"
    names = [*(EVIDENCE if printed.verb in LOOKING else ()), *(START if printed.verb in PREDICTING else ())]
    for name in names:
        wanted = asked.options.get(name)
        if name == "fail_on_data_loss":
            assert printed.options[name] in ((False,) if wanted is False else (True, None)), told
        elif wanted and not (name == "kafka" and printed.options[name] == "SERVERS"):
            assert printed.options[name] == wanted, told
    if printed.verb in PAYING:
        assert _list_accepted(asked) <= _list_accepted(printed), told
    if printed.verb in FORESEEING and "max_downtime" in asked.options:
        assert printed.options["max_downtime"] == asked.options["max_downtime"], told
    if printed.verb in ALLOWED:
        assert printed.options["policy"] == asked.options.get("policy"), told


def _list_accepted(command: Printed) -> set[Any]:
    return {waiver for each in command.options.get("accept") or () for waiver in each}


def _lines(out: str) -> Iterator[str]:
    try:
        told = json.loads(out)
    except ValueError:
        for line in out.splitlines():
            yield from _in_text(line.strip())
        return
    yield from _in_json(told)


def _in_json(told: Any) -> Iterator[str]:
    if isinstance(told, str):
        for line in told.splitlines():
            yield from _in_text(line)
    elif isinstance(told, dict):
        for each in told.values():
            yield from _in_json(each)
    elif isinstance(told, list):
        for each in told:
            yield from _in_json(each)


def _in_text(text: str) -> Iterator[str]:
    # A label of a finding, such as `next`, is set apart by blanks.
    text = re.sub(r"^(\w+) {2,}", "", text)
    for found in _COMMAND.finditer(text):
        for each in re.split(r",? or (?=lastgood )", found[0]):
            yield each.strip().rstrip(".,;")
