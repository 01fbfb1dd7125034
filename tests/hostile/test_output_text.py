"""What others wrote into names, topics, messages and rows is text wherever it is shown."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import forked
import pytest
from hostile.attacker import call

from lastgood.cli.output import make_console, make_styled, print_json
from lastgood.cli.timeline import open_timeline
from lastgood.errors import UsageError
from lastgood.incident.report_page import _escape_text, _format_code
from lastgood.supervise import events
from lastgood.testing.checkpoints import CheckpointBuilder
from lastgood.visible import format_json_line, make_visible

LASTGOOD = Path(sys.executable).parent / "lastgood"
EVIL = "a\x1b[2J\x1b]0;owned\x07\x9b31m\u202etxt.\u2066\u200b\u061c\ufeff\x7f\r\nb [bold]x[/bold] [/] :bug: \udc80"
SHOWN = r"a\x1b[2J\x1b]0;owned\x07\x9b31m\u202etxt.\u2066\u200b\u061c\ufeff\x7f\r\nb [bold]x[/bold] [/] :bug: \udc80"
BAD = [chr(each) for each in (*range(0x20), *range(0x7F, 0xA0), 0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F))]
BAD += [chr(each) for each in (*range(0x2060, 0x2070), 0xFEFF, 0xD800, 0xDFFF, 0xE0041)]
BAD += [chr(each) for each in (0xAD, 0x34F, 0x115F, 0x17B5, 0x180E, 0x3164, 0xFFA0, 0x1BCA1, 0x1D175, 0xE0101)]


@pytest.mark.parametrize("char", BAD)
def test_every_such_character_is_shown(char: str) -> None:
    assert make_visible(f"a{char}b").isprintable()
    line = format_json_line({char: char})
    assert line.isascii()
    assert json.loads(line) == {char: char}


def test_harmless_text_stays_as_it_is() -> None:
    text = "Bestellungen für 東京, naïve 🛒 [x] \\ :bug:"
    assert make_visible(text) == text
    assert json.loads(format_json_line(text)) == text
    assert text.replace("\\", "\\\\") in format_json_line(text)


def _printed(capsys: pytest.CaptureFixture[str]) -> str:
    return capsys.readouterr().out


def test_printed_text_is_one_line_and_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table
    from rich.text import Text

    out = make_console()
    table = Table(box=None)
    table.add_column("")
    table.add_row(EVIL)
    for what in (EVIL, make_styled(EVIL), make_styled(("x", "bold"), (EVIL, "red")), Text(EVIL), table):
        out.print(what)
        told = _printed(capsys)
        assert told.rstrip("\n").strip().removeprefix("x").replace(r"\x07", "").replace(r"\r", "") == SHOWN.replace(
            r"\x07", ""
        ).replace(r"\r", "")


def test_status_line_on_a_terminal_parses_no_markup() -> None:
    from lastgood.cli.terminal import Terminal

    out = Terminal(file=io.StringIO(), force_terminal=True, markup=False, emoji=False, width=400)
    with out.status("looking") as shown:
        shown.update(make_styled(EVIL))
        out.print(make_styled((EVIL, "bold")))
    told = out.file.getvalue()  # type: ignore[attr-defined]
    assert r"\x1b]0;owned" in told
    assert not {"\x07", "\x9b", "\u202e", "\u2066"} & set(told)
    assert "[bold]x[/bold] [/] :bug:" in told


@pytest.mark.parametrize(
    "event",
    [
        events.Noticed(at=0.0, condition="X", sentence=EVIL),
        events.Waiting(at=0.0, because=EVIL, delay_seconds=1.0),
        events.Diagnosed(at=0.0, checkpoint=EVIL, because=EVIL, guarantee=None, rests_on=[EVIL], seconds=0.1),
    ],
)
def test_event_of_run_stays_one_line(event: events.Event, capsys: pytest.CaptureFixture[str]) -> None:
    with open_timeline(make_console(), live=False) as listen:
        listen(event)
    told = _printed(capsys)
    assert told.count("\n") == 1 + len(getattr(event, "rests_on", []))  # each on a line of its own
    assert SHOWN in told
    print_json(event.to_json())
    line = _printed(capsys)
    assert line.count("\n") == 1
    assert line.isascii()


def test_error_and_its_facts_begin_no_line_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    from lastgood.cli.output import print_error

    print_error(UsageError(EVIL, subject=EVIL, found="one\nerror [NOTHING] all is well\x1b[2J"), "text")
    told = capsys.readouterr().err
    assert not any(line.startswith("error") for line in told.splitlines()[1:])
    assert all(line.isprintable() for line in told.splitlines())


def _typed(words: list[str], *, is_terminal: bool) -> str:
    """What a person sees, on a terminal or through a pipe."""
    if not is_terminal:
        done = forked.run(*words)
        return done.stdout + done.stderr
    ours, theirs = pty.openpty()
    env = {**os.environ, "TERM": "xterm", "COLUMNS": "1000"}
    with subprocess.Popen([LASTGOOD, *words], stdout=theirs, stderr=theirs, env=env) as done:
        os.close(theirs)
        seen = b""
        while True:
            try:
                piece = os.read(ours, 65536)
            except OSError:  # so a terminal ends
                break
            if not piece:
                break
            seen += piece
    os.close(ours)
    return seen.decode()


@pytest.mark.parametrize("is_terminal", [False, True])
def test_names_in_a_checkpoint_are_shown_as_text(tmp_path: Path, is_terminal: bool) -> None:
    evil = EVIL.replace("\udc80", "").replace("/", "|")  # a name of a file holds no slash
    folder = tmp_path / evil[:60] / "chk"
    query = CheckpointBuilder(folder)
    query.run(3)
    query.plan()
    (folder / "metadata").write_text(json.dumps({"id": "\x1b[2J[red]00000000[/]\u202e"}))
    (folder / "offsets" / "\x1b[2J\u202e").write_text("x")
    (folder / "offsets" / "2").write_text("v1\n\x1b]0;owned\x07\u202e")
    for words in (["status"], ["diagnose"], ["inspect"], ["inspect", "--all"], ["verify"], ["inspect", "--batch", "1"]):
        for form in ("text", "json"):
            told = _typed([words[0], str(folder), *words[1:], "--format", form], is_terminal=is_terminal)
            assert "]0;owned\x07" not in told, words
            assert "\x1b[2J" not in told, words
            assert not {"\u202e", "\x9b", "\u2066", "\x7f", "\x07"} & set(told), words
            assert "INTERNAL" not in told
    told = _typed(["status", str(folder.parent.parent)], is_terminal=is_terminal)
    assert "\x1b[2J" not in told
    assert r"\x1b[2J" in told


@pytest.mark.parametrize(
    "text",
    ["[click](http://evil)", "![x](http://evil/p.png)", "<img src=x>", "a|b", "`code`", "# head", "&lt;b&gt;", "~~x~~"],
)
def test_report_shows_foreign_text_as_text(text: str) -> None:
    import re

    from lastgood.incident.report_page import _escape_text, _format_code

    told = _escape_text(f"{text}\n# not a head\u202e\x1b[2J")
    assert told.isprintable()
    assert not re.search(r"(?<!\\)[`*_\[\]<>|#&~!]", told)
    assert "\n" not in _format_code(text + "\n")


_CELLS = (re.compile(r"(?<!\\)\|"), re.compile(r"(?:\\[\\|]|\\(?![\\|])|[^|\\])+"))
"""What ends a cell: for some readers a bar with no backslash right before it; others read backslashes by twos first."""


@pytest.mark.parametrize(
    "text", ["a|b", r"a\|<img src=x>", r"a\\|b", r"\|![x](http://evil/p.png)", "`a`\\|b", r"a\n\|b"]
)
def test_no_code_in_a_table_ends_its_cell(text: str) -> None:
    """Then what follows would be read as Markdown, or as HTML."""
    told = _format_code(text)
    bars, pieces = _CELLS
    assert bars.search(told) is None
    assert pieces.fullmatch(told) is not None


@pytest.mark.parametrize("text", ["- a", "+ a", "---", "===", "1. a", "12) a", "- [ ] a"])
def test_text_at_the_beginning_of_a_line_is_no_list_and_no_line(text: str) -> None:
    assert re.match(r"[-+=]|\d+[.)]", _escape_text(text)) is None
    assert _escape_text(text).replace("\\", "") == text


_ODD_NAMES = ("a\nb", "a\x1b[2J", "\u202etxt", "a\u200bb", "it's\t\\n", "-rf", "--sink", "token=5", "$HOME")


def _pasted(line: str) -> list[str]:
    """The words that a shell makes of what a person has copied from the terminal."""
    told = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, check=True).stdout
    return [os.fsdecode(word) for word in told.split(b"\0")[:-1]]


@pytest.mark.parametrize("name", _ODD_NAMES)
def test_printed_command_names_the_very_file_whatever_its_name(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An attacker who names a checkpoint, or a folder above it, would have another one looked at."""
    monkeypatch.chdir(tmp_path)
    query = CheckpointBuilder(tmp_path / name / "chk")
    query.run(3)
    query.plan()
    relative = f"{name}/chk"
    for verb in ("status", "diagnose", "plan", "inspect --batch 99", "verify"):
        told = call(*verb.split(), "--", relative)
        commands = re.findall(r"^ *(?:next +)?(lastgood [a-z].*)$", f"{told.out}{told.err}", re.MULTILINE)
        for line in commands:
            assert line.isprintable()
            places = [word for word in _pasted(line) if word.endswith("/chk")]
            assert {Path(place).absolute() for place in places} <= {tmp_path / relative}, line
            assert not any(place.startswith("-") for place in places), line
        assert commands or verb in ("plan", "verify")


def test_name_that_is_no_text_is_no_location(tmp_path: Path) -> None:
    """A plan could not name it; beside others it is told, and they are shown."""
    for name in ("a\udc80b", "good"):
        CheckpointBuilder(tmp_path / "all" / name).run(3)
    for verb in ("status", "plan", "recover", "backup create"):
        told = call(*verb.split(), tmp_path / "all/a\udc80b")
        assert (told.code, "LOCATION_INVALID" in told.err) == (13, True)
    told = call("status", tmp_path / "all")
    assert told.code == 1
    assert r"a\udc80b: the location is not understood" in told.out
    assert r"/all/a\200b'" in told.out
    assert "good" in told.out


def test_half_a_character_in_a_log_or_a_name_ends_no_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JSON can hold one, and so can the name of a file; no encoding can write it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    query = CheckpointBuilder(tmp_path / "chk")
    query.run(3)
    query.plan()
    for entry in (tmp_path / "chk/offsets").glob("[0-9]"):
        entry.write_text(entry.read_text().replace('"orders"', r'"orders\ud800"'))
    (tmp_path / "chk/offsets/\udc80").write_text("x")
    made = call("plan", "chk", "--goal", "replan", "--accept", "duplicates,loss", "-o", "plan.json", "--format", "json")
    assert made.code == 0, made
    assert r"orders\ud800" in Path("plan.json").read_text()
    done = call("apply", "plan.json", "--driver-is-dead", "--format", "json")
    assert (done.code, done.json.get("state")) == (0, "applied"), done
