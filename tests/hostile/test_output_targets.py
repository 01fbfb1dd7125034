"""What is no checkpoint is told as such: never a traceback, and never taken for a first start without a word."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import forked
import pytest

from lastgood.cli.main import main
from lastgood.testing.checkpoints import CheckpointBuilder

LASTGOOD = Path(sys.executable).parent / "lastgood"
DEAD = "--driver-is-dead"
READING = [
    ["status"],
    ["diagnose"],
    ["inspect"],
    ["inspect", "--all"],
    ["inspect", "--batch", "1"],
    ["inspect", "--state"],
    ["offsets"],
    ["verify"],
    ["backup", "list"],
]
CHANGING = [
    ["plan", "-o", "plan.json"],
    ["recover", DEAD],
    ["recover", "--observe"],
    ["backup", "create"],
    ["backup", "restore", "--from", "last"],
]
ABOUT_ONE = [["undo", "last", "--checkpoint"], ["report", "last", "--checkpoint"]]


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def typed(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """The exit code of a verb in this process, and all that was shown."""
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    shown = capsys.readouterr()
    return int(str(ended.value.code)), shown.out + shown.err


def _words(verb: list[str], target: object) -> list[object]:
    if verb in ABOUT_ONE:
        return [*verb, target]
    names = 2 if verb[0] == "backup" else 1
    return [*verb[:names], target, *verb[names:]]


def _file(place: Path) -> None:
    place.write_text("not a folder\n")


def _fifo(place: Path) -> None:
    os.mkfifo(place)


def _socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(os.path.relpath(place))


def _null(place: Path) -> None:
    place.symlink_to("/dev/null")


def _loop(place: Path) -> None:
    place.symlink_to(place.name)


def _garbage(place: Path) -> None:
    (place / "offsets" / "deep").mkdir(parents=True)
    (place / "commits").write_bytes(b"\xff\xfe")
    (place / "metadata").mkdir()
    for name in ("offsets/3", "offsets/x", "state", "sources", "offsets/-1", "offsets/007", "offsets/\udcff"):
        (place / os.fsdecode(name.encode(errors="surrogateescape"))).write_bytes(os.urandom(300))


def _fifos(place: Path) -> None:
    for name in ("offsets", "commits"):
        (place / name).mkdir(parents=True)
        os.mkfifo(place / name / "0")
    os.mkfifo(place / "metadata")


STRANGE = [_file, _socket, _fifo, _null, _loop, _garbage, _fifos]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("verb", [*READING, *CHANGING, *ABOUT_ONE], ids=" ".join)
@pytest.mark.parametrize("make", STRANGE, ids=lambda make: make.__name__)
def test_no_verb_stumbles_over_what_is_no_checkpoint(
    make: Callable[[Path], None], verb: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "target"
    make(target)
    code, told = typed(capsys, *_words(verb, target))
    assert code != 4, told
    assert "Traceback" not in told
    may_be_well = make in (_garbage, _fifos) or verb[:2] == ["backup", "list"] or "--observe" in verb
    assert code != 0 or may_be_well, told


@pytest.mark.parametrize("verb", ["apply", "plan", "diagnose", "status", "run"])
@pytest.mark.parametrize("text", ["", "\0", "x" * 5000, "s3a://", "http://[", "a\nb", "-", "file:///\udcff"])
def test_no_verb_stumbles_over_a_name(verb: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    # No argument of a process holds a zero byte, but one of a program that calls us.
    words = ["--config", text.replace("\0", "none"), "x"] if verb == "run" else [text]
    code, told = typed(capsys, verb, *words)
    assert code not in (0, 1, 4), told


@pytest.mark.parametrize("make", [_file, _fifo, _socket, _null], ids=lambda make: make.__name__)
def test_file_is_no_first_start(make: Callable[[Path], None], tmp_path: Path) -> None:
    make(tmp_path / "chk")
    for words in (
        ["recover", tmp_path / "chk", "--first-start"],
        ["recover", tmp_path / "chk"],
        ["run", "--no-agent", "--checkpoint", tmp_path / "chk", "--", "touch", tmp_path / "started"],
    ):
        done = forked.run(*words)
        assert done.returncode not in (0, 4), done
        assert "a file" in done.stdout + done.stderr
        assert not (tmp_path / "started").exists()


def test_empty_folder_is_no_first_start_without_a_word(tmp_path: Path) -> None:
    folder = tmp_path / "chk"
    folder.mkdir()

    def told(*words: object) -> tuple[int, str]:
        done = forked.run(*words)
        return done.returncode, done.stdout + done.stderr

    code, shown = told("recover", folder)
    assert code == 3
    assert "is an empty folder, and nobody can tell whether this is a first start" in shown
    assert f"lastgood recover {folder} --first-start" in shown
    supervised = ("--no-agent", "--checkpoint", folder)
    command = ("touch", tmp_path / "started")
    code, shown = told("run", *supervised, "--", *command)
    assert code == 3
    assert "--first-start" in shown
    assert not (tmp_path / "started").exists()
    assert told("recover", folder, "--first-start")[0] == 0
    assert told("run", *supervised, "--first-start", "--", *command)[0] == 0
    assert (tmp_path / "started").exists()
    folder.rmdir()
    assert told("recover", folder)[0] == 0  # as Spark finds it at a first start


_JSON = [b"", b"null", b"[]", b"{}", b"1", b'"x"', b"true", b"\xff\xfe", b"{", b"[" * 20_000, b"1e999", b'{"id": {}}']


@pytest.fixture
def repaired(tmp_path: Path) -> Path:
    """A checkpoint with all that lastgood puts beside it: mirror, backup, recovery, incident."""
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(4)
    query.plan()
    for words in (
        ["backup", "create", tmp_path / "chk"],
        ["plan", tmp_path / "chk", "--goal", "replan", "--accept", "duplicates", "-o", "p.json"],
        ["apply", "p.json", DEAD],
        ["recover", tmp_path / "chk", DEAD],
    ):
        done = forked.run(*words)
        assert done.returncode == 0, done
    return tmp_path / "chk"


@pytest.mark.timeout(600)
@pytest.mark.proof
def test_no_verb_stumbles_over_what_stands_in_a_file(repaired: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each file of the checkpoint and beside it, with each wrong content, against the verbs that read it."""
    beside = repaired.with_name(f"{repaired.name}.lastgood")
    files = [each for root in (repaired, beside) for each in sorted(root.rglob("*")) if each.is_file()]
    kinds: dict[str, Path] = {}
    for each in files:  # of names that differ by numbers and ids alone, the last
        kinds[re.sub(r"[0-9a-f-]{2,}|\d", "#", str(each))] = each
    verbs = [["status"], ["inspect"], ["verify"], ["backup", "list"], ["recover", DEAD], *ABOUT_ONE]
    kept = {name: shutil.copytree(name, f"{name}.kept") for name in (repaired, beside)}
    bugs = []
    for number, file in enumerate(kinds.values()):
        contents = [_JSON[number % len(_JSON)], _JSON[(number * 5 + 3) % len(_JSON)], _JSON[(number + 7) % len(_JSON)]]
        for content in contents:
            for verb in verbs:
                for name, copy in kept.items():
                    shutil.rmtree(name, ignore_errors=True)
                    shutil.copytree(copy, name)
                file.write_bytes(content)
                code, told = typed(capsys, *_words(verb, repaired))
                if code == 4 or "Traceback" in told:
                    bugs.append((str(file), content[:20], verb, told))
    assert not bugs, "\n\n".join(map(str, bugs[:5]))


def test_bug_of_ours_is_exit_code_4_and_a_file_to_send(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_words: object, **_options: object) -> None:
        password = "password=geheim123"
        raise ZeroDivisionError(f"oh no: {password}\nmore")

    monkeypatch.setattr("lastgood.audit.logs.verify_logs", broken)
    code, told = typed(capsys, "verify", tmp_path / "chk")
    assert code == 4
    assert "Traceback" not in told
    assert told.startswith("error [INTERNAL] this is a bug of lastgood\n")
    kept = next((tmp_path / "state" / "lastgood" / "bugs").iterdir())
    assert f"next      report it, with {kept}" in told
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(kept.parent.stat().st_mode) == 0o700
    written = kept.read_text()
    assert "ZeroDivisionError" in written
    assert "geheim123" not in written + told
    code, told = typed(capsys, "verify", tmp_path / "chk", "--format", "json")
    assert (code, json.loads(told)["error"]["condition"]) == (4, "INTERNAL")
    for words, variable in ((["--debug"], ""), ([], "1")):
        monkeypatch.setenv("LASTGOOD_DEBUG", variable)
        code, told = typed(capsys, *words, "verify", tmp_path / "chk", "--format", "text")
        assert (code, "Traceback" in told, "ZeroDivisionError" in told) == (4, True, True)
        assert "geheim123" not in told


def test_debug_shows_where_any_error_comes_from_and_changes_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = typed(capsys, "status", tmp_path / "none")
    code, told = typed(capsys, "--debug", "status", tmp_path / "none")
    assert plain[0] == code
    assert "Traceback" not in plain[1]
    assert "Traceback" in told
    assert told.endswith(plain[1])
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "--debug" in capsys.readouterr().out


def _left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Stand in a folder that somebody has removed."""
    (tmp_path / "left").mkdir()
    monkeypatch.chdir(tmp_path / "left")
    (tmp_path / "left").rmdir()


@pytest.mark.parametrize("verb", [*READING, *CHANGING, *ABOUT_ONE], ids=" ".join)
def test_no_verb_stumbles_over_a_folder_that_was_removed_around_it(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(3)
    _left(monkeypatch, tmp_path)
    code, told = typed(capsys, *_words(verb, tmp_path / "chk"))
    assert code != 4, told
    assert code == 0 or verb not in READING, told


@pytest.mark.parametrize(
    "words",
    [
        ["status", "chk"],
        ["run", "--checkpoint", "chk", "--", "true"],
        ["run", "--config", "one.toml", "x"],
    ],
    ids=" ".join,
)
def test_relative_name_means_nothing_in_a_folder_that_was_removed(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _left(monkeypatch, tmp_path)
    code, told = typed(capsys, *words)
    assert code not in (0, 1, 4), told


def test_no_ledger_is_named_from_a_folder_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    CheckpointBuilder(tmp_path / "chk").run(3)
    monkeypatch.setenv("LASTGOOD_LEDGER", "here.sqlite3")
    _left(monkeypatch, tmp_path)
    code, told = typed(capsys, "backup", "create", tmp_path / "chk")
    assert (code, "[LEDGER_URL_INVALID]" in told) == (2, True), told


@pytest.fixture
def removing(tmp_path: Path) -> list[str]:
    """A command that fails, and removes the folder in which its supervisor was called, as a new release does."""
    program = tmp_path / "command"
    program.write_text(f"#!/bin/sh\necho >> {tmp_path}/started; rm -rf {tmp_path}/release; exit 1\n")
    program.chmod(0o755)
    (tmp_path / "release").mkdir()
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(3)
    query.plan()
    return [str(program)]


@pytest.mark.parametrize("way", ["a command", "a pipeline", "a configuration"])
def test_supervisor_goes_on_where_the_folder_that_it_was_called_in_is_removed(
    removing: list[str], way: str, tmp_path: Path
) -> None:
    for name in ("lastgood.toml", "one.toml"):
        (tmp_path / "release" / name).write_text(
            f"""[pipeline.orders]
command = {json.dumps(removing)}
checkpoint = "{tmp_path}/chk"
policy = {{ backoff = "10ms" }}
"""
        )
    words = {
        "a command": ["--checkpoint", str(tmp_path / "chk"), "--", *removing],
        "a pipeline": ["orders"],
        "a configuration": ["--config", "one.toml", "orders"],
    }[way]
    done = forked.run("run", "--no-agent", *words, cwd=tmp_path / "release")
    assert done.returncode == 3, done
    assert "a person is needed" in done.stderr
    assert (tmp_path / "started").read_text().count("\n") > 1


def test_database_whose_port_is_none_is_told_and_not_quoted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The host was forgotten: what is taken for the port is the password."""
    CheckpointBuilder(tmp_path / "chk").run(2)
    for verb in ("status", "plan"):
        code, shown = typed(capsys, verb, tmp_path / "chk", "--sink", "postgresql://etl:hunter2/orders")
        assert code == 2, shown
        assert "hunter" not in shown


def test_text_that_is_too_long_for_a_name_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Five brokers of a cloud are."""
    chk = tmp_path / "chk"
    CheckpointBuilder(chk).run(2)
    brokers = ",".join(f"127.0.0.1:{1 + number % 5}" for number in range(40))
    assert typed(capsys, "status", chk, "--kafka", brokers)[0] < 2
    assert typed(capsys, "status", chk, "--kafka", f"/{'a' * 300}.json")[0] == 2
    assert typed(capsys, "offsets", chk, "--time", "9" * 5000)[0] == 2
    for config in ("", '[pipeline.orders]\ncommand = ["true"]\n'):
        if config:
            Path("lastgood.toml").write_text(config)
        for verb in ("status", "plan", "diagnose"):
            code, shown = typed(capsys, verb, "a" * 300)
            assert code in (2, 10), shown
