from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from lastgood.cli.evidence import add_evidence_options
from lastgood.observe.evidence import EvidenceOptions


@pytest.fixture
def command() -> click.Command:
    @click.command()
    @click.argument("target")
    @add_evidence_options
    def show(target: str, *, options: EvidenceOptions) -> None:
        click.echo(f"{target}: {options!r}")

    return show


def test_a_command_gets_all_of_them_as_one_value(command: click.Command, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    words = ["chk", "--sink", "a", "--sink", "b", "--kafka", "k:1", "--kafka-config", str(config)]
    words += ["--topic", "t", "--topic", "u", "--subscribe-pattern", "p.*", "--txn-app-id", "etl"]
    shown = CliRunner().invoke(command, words)
    assert shown.output == f"chk: {EvidenceOptions(('a', 'b'), 'k:1', ('t', 'u'), 'p.*', config, 'etl')!r}\n"


def test_without_any_of_them_nobody_is_asked(command: click.Command) -> None:
    assert CliRunner().invoke(command, ["chk"]).output == f"chk: {EvidenceOptions()!r}\n"


def test_options_stand_in_the_order_in_which_they_are_needed(command: click.Command) -> None:
    shown = CliRunner().invoke(command, ["--help"]).output
    names = ["--sink", "--kafka ", "--kafka-config", "--topic", "--subscribe-pattern", "--txn-app-id"]
    places = [shown.index(name) for name in names]
    assert places == sorted(places)
