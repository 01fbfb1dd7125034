"""What `run` prints for a person can be typed as it stands: in events, on the timeline, and in what `report` tells."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from printed import Answer, parsed
from supervising import make_open_batch
from typed import call

from lastgood.operations.backup import create
from lastgood.settings.target import resolve_target

USAGE, BUG = 2, 4
SECRET = "hid/d@n"
FAILS = "raise SystemExit(1)"
FILE_SINK = 'sink = "file:sink"'
DEAD_SINK = f'{FILE_SINK}\ndriver_check = ["true"]'
UNTOLD = 'driver_check = ["true"]'


@dataclass(frozen=True)
class World:
    """Something that has happened, and how the pipeline stands in `lastgood.toml`."""

    happens: Callable[[Path], object]
    query: str = FILE_SINK
    policy: str = ""
    is_named: bool = True
    """Whether the pipeline is run by its name; else its command is given."""


def nothing(_: Path) -> None:
    pass


def plan_torn(checkpoint: Path) -> None:
    create(resolve_target(str(checkpoint)))
    (checkpoint / "offsets/7").write_bytes((checkpoint / "offsets/7").read_bytes()[:10])


def checkpoint_lost(checkpoint: Path) -> None:
    checkpoint.rename(checkpoint.with_name("gone"))


def long_ago(checkpoint: Path) -> None:
    for commit in (checkpoint / "commits").iterdir():
        os.utime(commit, (1, 1))


WORLDS = {
    "a driver may be alive": World(plan_torn),
    "a driver of a command may be alive": World(plan_torn, is_named=False),
    "nobody has accepted it": World(nothing, UNTOLD, "same_batch = 2\nmax_attempts = 2"),
    "it fails for ever": World(nothing, DEAD_SINK, "same_batch = 9\nmax_attempts = 1"),
    "it is planned anew": World(nothing, DEAD_SINK, 'same_batch = 2\nmax_attempts = 3\naccept = ["duplicates"]'),
    "it was down for long": World(long_ago, DEAD_SINK, 'after_outage = "1h"'),
    "the checkpoint is lost": World(checkpoint_lost, DEAD_SINK),
    "the checkpoint of a command is lost": World(checkpoint_lost, is_named=False),
    "the sink has a password": World(
        plan_torn, f'sink = "postgresql://me:{SECRET}@127.0.0.1:1/fences"\ndriver_check = ["true"]', "same_batch = 2"
    ),
}


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return make_open_batch(tmp_path)


def say(folder: Path, *words: str) -> Answer:
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state")}
    done = call(*words, env=env, cwd=folder)
    return Answer(words, done.returncode, done.stdout + done.stderr)


def answers(folder: Path, world: World) -> list[Answer]:
    (folder / "app.py").write_text(textwrap.dedent(FAILS))
    command = [sys.executable, str(folder / "app.py")]
    policy = f'[pipeline.app.policy]\nbackoff = "10ms"\ngrace = "500ms"\n{world.policy}\n'
    (folder / "lastgood.toml").write_text(
        f'[pipeline.app]\ncommand = {command}\ncheckpoint = "{folder}/chk"\n{world.query}\n{policy}'.replace("'", '"')
    )
    words = ("run", "app") if world.is_named else ("run", "--checkpoint", str(folder / "chk"), "--sink", "file:sink")
    rest = () if world.is_named else ("--", *command)
    said = [say(folder, *words, "--format", form, *rest) for form in ("json", "text")]
    return [
        *said,
        *(say(folder, "report", "last", "--checkpoint", "chk", "--format", form) for form in ("json", "text")),
    ]


@pytest.mark.parametrize("name", WORLDS)
def test_every_command_that_run_prints_can_be_typed(tmp_path: Path, checkpoint: Path, name: str) -> None:
    world = WORLDS[name]
    world.happens(checkpoint)
    said = answers(tmp_path, world)
    assert not [answer for answer in said if answer.code in (USAGE, BUG)], said
    assert SECRET not in "".join(answer.out for answer in said)
    printed = {each.line: each for answer in said for each in answer.printed()}
    for line, each in printed.items():
        if each.verb == "run" or not each.can_be_run:
            continue
        done = say(tmp_path, *each.words)
        assert done.code not in (USAGE, BUG), (line, done.out)


def test_where_only_its_name_can_say_it_a_query_goes_by_its_name(tmp_path: Path, checkpoint: Path) -> None:
    world = WORLDS["the sink has a password"]
    world.happens(checkpoint)
    asked = [each for answer in answers(tmp_path, world)[:2] for each in answer.printed()]
    assert asked
    for each in asked:
        assert parsed(each.line).words[1] == "app"


def test_command_without_a_configuration_says_how_what_it_prints_finds_the_password(
    tmp_path: Path, checkpoint: Path
) -> None:
    plan_torn(checkpoint)
    (tmp_path / "app.py").write_text(FAILS)
    sink = f"postgresql://me:{SECRET}@127.0.0.1:1/fences"
    words = ("run", "--checkpoint", str(tmp_path / "chk"), "--sink", sink, "--format", "json", "--")
    said = say(tmp_path, *words, sys.executable, str(tmp_path / "app.py"))
    assert said.code not in (USAGE, BUG), said.out
    assert SECRET not in said.out
    assert "commands name postgresql://me@127.0.0.1:1/fences without its password" in said.out
    assert "PGPASSWORD" in said.out
    looked = say(tmp_path, "status", "chk", "--sink", sink)
    assert "Note: commands name postgresql://me@127.0.0.1:1/fences without its password" in looked.out
    assert SECRET not in looked.out
