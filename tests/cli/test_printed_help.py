"""Commands in helps, in the documentation and in the stories of conditions are commands; what they say is so."""

from __future__ import annotations

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click
import pytest
from printed import parsed

from lastgood.cli.main import VERBS, lastgood
from lastgood.diagnosis.catalogue import list_names, list_topics
from lastgood.failures.failure_class import FailureClass
from lastgood.operations.explain import explain
from lastgood.settings.config import Config
from lastgood.settings.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md")), *sorted((ROOT / "examples").glob("**/*.md"))]
_AFTER = re.compile(r"\s+(?:#|&&|\|(?!\|)|>|\s{2,}\S).*$")
"""What a shell, or a reader, takes for the end of the command."""
_OPTIONAL = re.compile(r"\[[^\]]*\]|…")


def helps() -> Iterator[tuple[str, click.Command]]:
    for verb in VERBS:
        command = lastgood.get_command(click.Context(lastgood), verb)
        assert command is not None
        yield verb, command
        if isinstance(command, click.Group):
            yield from command.commands.items()


def lines_of(text: str) -> Iterator[str]:
    """Lines that begin with a command, with those that they go on in."""
    for line in text.replace("\\\n", " ").splitlines():
        if re.match(rf"\s*lastgood (?:{'|'.join(VERBS)})\b", line):
            yield _AFTER.sub("", line.strip().split("   ")[0])


def can_be_typed(line: str) -> bool:
    return not _OPTIONAL.search(line)


@pytest.mark.parametrize("command", [pytest.param(each, id=name) for name, each in helps()])
def test_every_command_in_a_help_can_be_typed(command: click.Command) -> None:
    for line in lines_of(command.help or ""):
        parsed(line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_on_a_page_can_be_typed(page: Path) -> None:
    text = page.read_text()
    blocks = "\n".join(re.findall(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    inline = re.findall(rf"`(lastgood (?:{'|'.join(VERBS)})\b [^`]+)`", text)
    for line in [*lines_of(blocks), *(" ".join(each.split()) for each in inline)]:
        if can_be_typed(line) and not is_a_name(line):
            parsed(line)


def test_every_repair_that_is_shown_says_that_the_driver_is_dead() -> None:
    text = "\n".join([(ROOT / "README.md").read_text(), *(command.help or "" for _, command in helps())])
    shown = [parsed(line) for line in lines_of(text) if can_be_typed(line) and not is_a_name(line)]
    repairs = [each for each in shown if each.verb in ("apply", "undo")]
    assert len(repairs) >= 4
    assert all(each.options["driver_is_dead"] for each in repairs)  # nothing here has a `driver_check` that knows it


def is_a_name(line: str) -> bool:
    """`lastgood backup create`, `lastgood diagnose --save`: a verb that is spoken of, not a command."""
    _, verb, *rest = shlex.split(line.replace("--format json", ""))
    return all(word.startswith("-") for word in (rest[1:] if verb == "backup" else rest))


def test_every_command_in_a_story_can_be_typed() -> None:
    for topic in list_topics():
        for found in re.findall(rf"`(lastgood (?:{'|'.join(VERBS)})\b [^`]+)`", topic.story):
            line = " ".join(found.split())
            if can_be_typed(line) and not is_a_name(line):
                parsed(line)


@pytest.mark.parametrize("cls", FailureClass)
def test_every_failure_that_a_log_tells_of_has_its_story(cls: FailureClass) -> None:
    name = f"FAILURE_{cls.name}"
    assert name in list_names()
    assert explain(name).story


def test_a_batch_that_is_too_large_is_told_of_replan() -> None:
    for name in ("ORPHAN_BATCH", "FAILURE_RESOURCES"):
        assert "--goal replan" in " ".join(explain(name).story.split())


UNSET = {"stall_after", "after_outage", "max_replay", "via", "start_file", "start_form", "start_key"}
"""What a page may show though it is off by default."""


def test_the_policy_that_the_readme_calls_the_default_is_the_default(tmp_path: Path) -> None:
    (block,) = re.findall(r"^```toml\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    told = tomllib.loads(block)["pipeline"]["orders"]["policy"]
    (tmp_path / "lastgood.toml").write_text(block)
    assert Config(tmp_path / "lastgood.toml").pipelines()["orders"].policy == Policy()
    fields = {name.removesuffix("_seconds") for name in asdict(Policy())}
    unsaid = {
        "stall_after",
        "backoff",
        "backoff_max",
        "grace",
        *UNSET,
        "outage_start",
        "on_code_change",
        "on_state_loss",
        "takes_any_number",
        "show_data",
    }
    assert fields - set(told) == unsaid - {"start_file", "start_form", "start_key"}


def test_the_values_on_the_page_of_run_are_the_defaults_but_for_those_that_are_off() -> None:
    text = (ROOT / "docs/reference/run.md").read_text()
    (block,) = re.findall(r"^```toml\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    told = tomllib.loads(block)["pipeline"]["orders"]["policy"]
    assert set(told) >= UNSET
    for name, value in told.items():
        if name not in UNSET:
            assert shown(value) == value_of(name), name


def shown(value: object) -> object:
    from lastgood.settings.config import parse_duration

    if isinstance(value, str) and value[:1].isdigit():
        return parse_duration(value)
    return tuple(value) if isinstance(value, list) else value


def value_of(name: str) -> object:
    values = asdict(Policy())
    return values.get(name, values.get(f"{name}_seconds"))
