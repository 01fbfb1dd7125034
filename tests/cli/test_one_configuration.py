"""A command goes by one `lastgood.toml`: it is opened once, in one place, and what it says is handed down."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from modules import nodes, parse_modules
from typed import call

from lastgood.cli.main import VERBS
from lastgood.testing.checkpoints import CheckpointBuilder

NAME = "lastgood.toml"
CONFIG = f"""
ledger = "ledger.db"
[pipeline.orders]
command = [{json.dumps(sys.executable)}, "-c", "pass"]
checkpoint = "chk"
sink = "file:sink"
driver_check = ["true"]
max_downtime = "3d"
[pipeline.orders.policy]
accept = ["duplicates"]
"""

_watched: list[list[str]] = []
"""Who counts now, each with what was opened since; nobody can take an audit hook away."""


def _opened(event: str, arguments: tuple[object, ...]) -> None:
    if event == "open" and _watched and isinstance(arguments[0], str) and arguments[0].endswith(".toml"):
        for each in _watched:
            each.append(Path(arguments[0]).name)


sys.addaudithook(_opened)


@pytest.fixture
def opened() -> Iterator[list[str]]:
    """The names of the configurations that were opened, whoever did it."""
    found: list[str] = []
    _watched.append(found)
    yield found
    _watched.remove(found)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline whose newest plan is cut off, and of which the mirror and a backup have it whole."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("LASTGOOD_KEY", "")
    CheckpointBuilder(tmp_path / "chk").run(7)
    (tmp_path / NAME).write_text(CONFIG)
    log = tmp_path / "sink/_spark_metadata"
    log.mkdir(parents=True)
    for number in range(7):
        (log / str(number)).write_bytes(b"v1")
    said("backup", "create", "orders")
    (tmp_path / "chk/offsets/6").write_bytes(b"v1\n{")
    return tmp_path


def said(*words: object, refused: int | None = None) -> None:
    """A command that comes to an answer of its own; 1: there are findings; 57: there is nothing to be done."""
    done = call(*words)
    assert done.returncode in ((refused,) if refused else (0, 1)), done.stdout + done.stderr


def planned() -> None:
    said("plan", "orders", "-o", "plan.json")


def recovered() -> None:
    said("recover", "orders")


def keyed() -> None:
    said("key", "create", "key")
    Path(NAME).write_text(f'{CONFIG}\n[trust]\nkey_file = "key"\n')


def lost() -> None:
    for log in ("offsets", "commits"):
        for file in Path("chk", log).iterdir():
            file.unlink()


def nothing() -> None:
    pass


@dataclass(frozen=True)
class Typed:
    """A command, and what has to be there before."""

    words: str
    before: Callable[[], None] = nothing
    times: int = 1
    refused: int | None = None
    """The exit code with which it is refused; None: it is not."""


COMMANDS = (
    Typed("run --check"),
    Typed("run orders"),
    Typed("recover orders"),
    Typed("recover orders --observe"),
    Typed("recover orders --goal replan --observe"),
    Typed("recover orders", keyed),
    Typed("status orders"),
    Typed("status chk"),
    Typed("diagnose orders"),
    Typed("inspect orders"),
    Typed("inspect orders --all"),
    Typed("inspect orders --batch 3"),
    Typed("inspect orders --state"),
    Typed("inspect orders --files", refused=2),
    Typed("offsets orders"),
    Typed("plan orders"),
    Typed("plan orders --goal fresh --at-sink"),
    Typed("rebuild orders", refused=57),
    Typed("apply plan.json --driver-is-dead", planned),
    Typed("apply plan.json", planned),
    Typed("undo last --checkpoint orders", recovered),
    Typed("report last", recovered),
    Typed("report last --checkpoint orders", recovered),
    Typed("backup create orders"),
    Typed("backup list orders"),
    Typed("backup keep orders last"),
    Typed("backup restore orders", lost),
    Typed("key list"),
    Typed("key list", keyed),
    Typed("key rotate", keyed),
    Typed("key sign orders --yes", keyed),
    Typed("verify orders"),
    Typed("load in.csv --to file:there", times=0, refused=2),
    Typed("explain ORPHAN_BATCH", times=0),
    Typed("explain", times=0),
    Typed("completion bash", times=0),
)
_NOT_TYPED = {"demo"}
"""Verbs that bring their own pipeline."""


@pytest.mark.parametrize("typed", COMMANDS, ids=lambda each: f"{each.words}{'' if each.before is nothing else '+'}")
def test_a_command_opens_the_configuration_once(typed: Typed, opened: list[str]) -> None:
    typed.before()
    opened.clear()
    said(*typed.words.split(), refused=typed.refused)
    assert opened == [NAME] * typed.times


def test_a_command_that_names_another_configuration_opens_each_once(folder: Path, opened: list[str]) -> None:
    (folder / NAME).rename(folder / "other.toml")
    said("recover", "orders", "--policy", "other.toml")
    assert opened == ["other.toml"]
    (folder / NAME).write_text('[pipeline.clicks]\ncommand = ["x"]\ncheckpoint = "clicks"\n')
    (folder / "chk/offsets/6").write_bytes(b"v1\n{")
    opened.clear()
    said("recover", "orders", "--policy", "other.toml", "--driver-is-dead")
    assert sorted(opened) == [NAME, "other.toml"], "a printed `undo` goes by the one that it finds here"


def test_no_verb_is_left_out() -> None:
    assert {typed.words.split()[0] for typed in COMMANDS} == set(VERBS) - _NOT_TYPED


def test_a_configuration_that_changes_meanwhile_is_not_read_again(folder: Path) -> None:
    from lastgood.settings.config import Config
    from lastgood.settings.target import resolve_target

    target = resolve_target("orders", Config())
    (folder / NAME).write_text("[")
    assert target.policy.accept == ("duplicates",)
    assert target.pipeline is not None
    assert target.pipeline.driver_check == ("true",)


def test_only_the_settings_open_it() -> None:
    parsers = {"tomllib", "CONFIG_NAME", "_read"}
    found = set()
    for file, tree in parse_modules().items():
        for node in nodes(tree, ast.Import, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            is_of_settings = isinstance(node, ast.ImportFrom) and (node.module or "").startswith("lastgood.settings")
            if "tomllib" in names or (is_of_settings and names & parsers):
                found.add(file)
    assert found == {"settings/config.py"}


_EDGE = ("cli/", "library.py", "session/", "settings/")
"""Where a person or a program says what is meant, and where that is resolved."""


def test_below_the_edge_nobody_takes_a_target_that_is_not_resolved() -> None:
    found = []
    for file, tree in parse_modules().items():
        if file.startswith(_EDGE):
            continue
        for node in nodes(tree, ast.FunctionDef, ast.AsyncFunctionDef):
            taken = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
            types = {each.arg: "" if each.annotation is None else ast.unparse(each.annotation) for each in taken}
            if types.get("target") == "str" or ("Path" in types.get("config", "") and "kafka" not in types):
                found.append(f"{file}: {node.name}")
    assert found == ["observe/bundle.py: is_bundle"], "a bundle is a file"
