"""A user may count more as secret, in `lastgood.toml` or in the environment; what is none is told, and nothing runs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lastgood.errors import ConfigError
from lastgood.redaction import redact, redact_nothing_else
from lastgood.settings.config import Config

PIPELINE = '[pipeline.a]\ncommand = ["true"]\n'


@pytest.fixture(autouse=True)
def _only_here() -> Iterator[None]:
    yield
    redact_nothing_else()


def test_the_configuration_names_more(tmp_path: Path) -> None:
    file = tmp_path / "lastgood.toml"
    file.write_text(f"[redact]\nregex = '(?i)iban'\nstring_regex = 'C-[0-9]+'\n{PIPELINE}")
    Config(file).pipelines()
    assert redact("iban=DE12 of C-17, password=x") == "iban=*** of ***, password=***"


@pytest.mark.parametrize("told", ["regex = '('", "string_regex = 'x*'", "regexp = 'x'", "regex = 5"])
def test_what_is_no_regular_expression_is_told(tmp_path: Path, told: str) -> None:
    file = tmp_path / "lastgood.toml"
    file.write_text(f"[redact]\n{told}\n{PIPELINE}")
    with pytest.raises(ConfigError, match="redact"):
        Config(file).pipelines()


@pytest.mark.parametrize(
    "told",
    [
        'kafka = "etl:Zq7hunter2xK@broker"',
        'kafka = { bootstrap = { password = "Zq7hunter2xK" } }',
        'ledger = { url = "Zq7hunter2xK" }',
        'query = "Zq7hunter2xK"',
        'query.a = ["Zq7hunter2xK"]',
        'driver_check = "curl -u etl:Zq7hunter2xK http://yarn"',
        "env = { DB_PASSWORD = 7712345 }",
        "env = { DB_PASSWORD = [7712345] }",
    ],
)
def test_no_secret_is_shown_of_what_stands_in_the_wrong_place(tmp_path: Path, told: str) -> None:
    file = tmp_path / "lastgood.toml"
    file.write_text(f"{PIPELINE}{told}\n")
    with pytest.raises(ConfigError) as refused:
        Config(file).pipelines()
    assert not re.search("hunter2|7712345", json.dumps(refused.value.to_json()))


@pytest.mark.parametrize("name", ["LASTGOOD_REDACT_REGEX", "LASTGOOD_REDACT_STRING_REGEX"])
def test_so_does_the_environment(name: str) -> None:
    command = [sys.executable, "-c", "from lastgood.cli.main import main; main(['explain'])"]
    done = subprocess.run(command, env={**os.environ, name: "("}, capture_output=True, text=True, check=False)
    assert (done.returncode, name in done.stderr) == (2, True)
