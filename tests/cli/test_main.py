from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import forked
import pytest

from lastgood.cli.main import VERBS

LASTGOOD = Path(sys.executable).parent / "lastgood"


def call(*arguments: str, **environment: str) -> forked.Ended:
    return forked.run(*arguments, env={**os.environ, **environment})


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_a_function_and_a_help_that_teaches(verb: str) -> None:
    command = getattr(importlib.import_module(f"lastgood.cli.{verb}"), verb)
    assert isinstance(command, click.Command)
    shown = call(verb, "--help")
    assert shown.returncode == 0
    assert f"lastgood {verb}" in shown.stdout
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help, f"{option.name} has no help"


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_comes_from_a_variable_that_its_help_names(verb: str) -> None:
    shown = " ".join(call(verb, "--help").stdout.split())
    command = getattr(importlib.import_module(f"lastgood.cli.{verb}"), verb)
    for option in command.params:
        if isinstance(option, click.Option):
            name = max(option.opts, key=len).removeprefix("--").replace("-", "_").upper()
            assert f"LASTGOOD_{verb.upper()}_{name}" in shown.replace("LASTGOOD_ ", "LASTGOOD_")


def test_a_variable_is_as_good_as_an_option(tmp_path: Path) -> None:
    missing = str(tmp_path / "none")
    assert json.loads(call("status", missing, LASTGOOD_STATUS_FORMAT="json").stdout)["error"]
    shown = call(
        "backup", "restore", missing, LASTGOOD_BACKUP_RESTORE_FROM="last", LASTGOOD_BACKUP_RESTORE_FORMAT="json"
    )
    assert json.loads(shown.stdout)["error"]["condition"] == "BACKUP_MISSING"


@pytest.mark.parametrize("verb", VERBS)
def test_examples_in_a_help_stay_as_lines(verb: str) -> None:
    command = getattr(importlib.import_module(f"lastgood.cli.{verb}"), verb)
    lines = call(verb, "--help").stdout.splitlines()
    assert not any("\\b" in line or "\b" in line for line in lines)
    for block in (command.help or "").split("\\b\n")[1:]:
        examples = block.partition("\n\n")[0].splitlines()
        assert {line.strip() for line in examples} <= {line.strip() for line in lines}


def test_help_lists_every_verb_without_importing_one() -> None:
    shown = call("--help")
    assert shown.returncode == 0
    assert all(verb in shown.stdout for verb in VERBS)
    code = "import sys; from lastgood.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass\n"
    code += "assert not {'rich', 'fsspec', 'psutil', 'pyspark', 'lastgood.operations'} & set(sys.modules), sys.modules"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr == ""


def test_unknown_verb_is_a_usage_error() -> None:
    refused = call("recoverr")
    assert refused.returncode == 2
    assert refused.stderr.startswith("error [USAGE] no such command 'recoverr'")
    assert "Traceback" not in refused.stderr
    assert refused.stdout == ""


def test_refusal_in_json_is_one_object_on_standard_output() -> None:
    refused = call("run", "--format", "json", "nothing-like-it")
    assert refused.returncode == 2
    assert json.loads(refused.stdout)["error"]["condition"] == "CONFIG_INVALID"
    assert refused.stderr == ""


def test_a_reader_that_leaves_is_no_error() -> None:
    piped = subprocess.run(["bash", "-c", f"{LASTGOOD} --help | true; echo ${{PIPESTATUS[0]}}"], capture_output=True)
    assert piped.stderr == b""


@pytest.mark.parametrize("verb", ["--help", "explain", "explain --format json"])
def test_full_disk_of_the_reader_is_a_clear_error(verb: str) -> None:
    with Path("/dev/full").open("wb") as full:
        told = subprocess.run([LASTGOOD, *verb.split()], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert told.returncode == 11
    assert told.stderr.startswith("error [NO_SPACE] the output cannot be written\n")
    assert "Traceback" not in told.stderr


def test_output_without_a_terminal_has_no_colours() -> None:
    refused = call("run", TERM="xterm-256color")
    assert "\x1b" not in refused.stdout + refused.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_knows_the_verbs(shell: str) -> None:
    assert "_LASTGOOD_COMPLETE" in call("completion", shell).stdout
    completed = call(_LASTGOOD_COMPLETE="bash_complete", COMP_WORDS="lastgood ru", COMP_CWORD="1")
    assert completed.stdout == "plain,run\n"


def test_version_is_the_packages() -> None:
    import lastgood

    assert call("--version").stdout == f"lastgood {lastgood.__version__}\n"
