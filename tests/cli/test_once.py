"""Options that are given twice: both count where they can be repeated, and else nothing is done."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from typed import call

from lastgood.cli.main import VERBS, lastgood
from lastgood.testing.checkpoints import CheckpointBuilder


def list_commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    context = click.Context(lastgood)
    for verb in VERBS:
        command = lastgood.get_command(context, verb)
        assert command is not None
        if isinstance(command, click.Group):
            yield from (((verb, name), each) for name, each in command.commands.items())
        else:
            yield (verb,), command


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    CheckpointBuilder(tmp_path / "orders").run(4)
    return tmp_path / "orders"


@pytest.mark.parametrize("words", [("--accept", "loss", "--accept", "duplicates"), ("--accept", "loss,duplicates")])
def test_all_that_is_accepted_counts_however_it_is_said(
    words: tuple[str, ...], checkpoint: Path, tmp_path: Path
) -> None:
    goal = ("--goal", "reposition", "--batch", "1", "--output", str(tmp_path / "plan.json"))
    found = json.loads(call("plan", checkpoint, *goal, *words, "--format", "json").stdout)
    assert (found["accepted"], found["needs"]) == (["loss", "duplicates"], [])


def test_every_sink_that_is_named_counts(checkpoint: Path, tmp_path: Path) -> None:
    sinks = [tmp_path / name / "_spark_metadata" for name in ("a", "b")]
    for each in sinks:
        each.mkdir(parents=True)
        (each / "3").write_text("v1\n")
    words = [word for each in sinks for word in ("--sink", f"file:{each.parent}")]
    assert len(json.loads(call("status", checkpoint, *words, "--format", "json").stdout)["sinks"]) == 2


@pytest.mark.parametrize(
    ("words", "command"), list(list_commands()), ids=lambda each: "-".join(each) if isinstance(each, tuple) else ""
)
def test_option_that_says_one_thing_is_never_taken_from_its_last_word(
    words: tuple[str, ...], command: click.Command
) -> None:
    for option in command.params:
        if not isinstance(option, click.Option) or option.multiple or option.is_flag or option.name == "output_format":
            continue
        name = max(option.opts, key=len)
        told = call(*words, name, "1", name, "2")
        assert told.returncode == 2, name
        assert "given more than once, and says one thing" in told.stderr, name


def test_servers_that_were_named_twice_are_not_half_of_them(checkpoint: Path) -> None:
    told = call("status", checkpoint, "--kafka", "a:9092", "--kafka", "b:9092")
    assert told.returncode == 2
    assert "servers of one cluster stand in it with commas between them" in told.stderr


def test_answer_may_be_wanted_in_another_form_after_all(checkpoint: Path) -> None:
    assert json.loads(call("status", checkpoint, "--format", "text", "--format", "json").stdout)["grade"] == "healthy"
