"""Secrets and rows of the data, put wherever they can come from, under every verb: nothing that is written holds one.

The verbs and their options come from the command line's own table, so that a new one is tried without being named here.
"""

from __future__ import annotations

import gzip
import io
import itertools
import json
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import click
import pytest
from hostile.attacker import Answer, call
from hostile.conftest import table
from hostile.sentinels import ROW, SECRET, require_none, require_none_in, unpacked

from lastgood.cli.main import VERBS
from lastgood.cli.main import lastgood as command_line
from lastgood.records.record import ChainedException, RecordedFailure, Terminated
from lastgood.redaction import redact_nothing_else
from lastgood.spark.record_sinks import AsTold, locate_records, open_record_taker
from lastgood.storage.reading import parse_location
from lastgood.testing.checkpoints import QUERY_ID, CheckpointBuilder

DEAD = "--driver-is-dead"
URL = f"postgresql://etl:{SECRET}@127.0.0.1:1/orders"
JAAS = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="etl" password="{SECRET}";'
ERROR = f"could not connect to jdbc:postgresql://127.0.0.1:1/orders?user=etl&password={SECRET} with {JAAS}"
BROKEN_ROW = f"Key (mail)=({ROW}) already exists; no such field in Row(name='{ROW}')"
PLACES = (
    URL,
    f"jdbc:sqlserver://127.0.0.1:1;user=sa;password={SECRET};encrypt=true",
    f"s3a://KEY:{SECRET}@bucket/orders",
    f"https://hooks.slack.com/services/T0/B0/{SECRET}",
)
"""What may be given for a location: any other text would be the path of a file, and a path is shown."""
SPELLED = (
    *PLACES,
    f"--password={SECRET}",
    f"sasl.jaas.config={JAAS}",
    f"--conf spark.my.password={SECRET}",
    f'{{"password": "{SECRET}"}}',
)
_LEFT_OUT = ("--prove", "--data", "--show-data", "--show-output")
"""Options that start a real Spark, and those that ask for rows, or for what the application says."""
_SERVICES = frozenset({"demo"})
"""Verbs that start services: tried only with what they refuse."""


@dataclass(frozen=True)
class World:
    """A machine, the lake that it works on, and what was put into both."""

    root: Path
    said: list[tuple[tuple[object, ...], Answer]] = field(default_factory=list)

    @property
    def checkpoint(self) -> Path:
        return self.root / "lake/chk"

    @property
    def table(self) -> Path:
        return self.root / "lake/table"

    @property
    def here(self) -> Path:
        return self.root / "here"

    def call(self, *words: object) -> Answer:
        """A verb in this process."""
        answer = call(*words)
        self.said.append((words, answer))
        assert "Traceback" not in answer.err, (words, answer.err)
        assert answer.code != 4, (words, answer)
        return answer

    def written(self) -> Iterator[Path]:
        """Every file but those that were put in, and Spark's own."""
        put_in = (self.root / "given", self.checkpoint, self.table, self.here / "lastgood.toml")
        for file in sorted(self.root.rglob("*")):
            if file.is_file() and not any(file.is_relative_to(each) for each in put_in):
                yield file

    def own_words(self, file: Path) -> bool:
        """Whether a file holds what the application itself has said, on its own machine."""
        return "/log/" in f"/{file.relative_to(self.root)}" and ".log" in file.name

    def look(self) -> None:
        """Nothing written holds a secret or a row, and all of it is for its owner alone."""
        for words, answer in self.said:
            for text in (answer.out, answer.err):
                require_none(text, words)
        for file in self.written():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
            if file.parent != self.here:
                assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700, file.parent
            if not self.own_words(file):
                require_none_in(file)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Seven batches are committed to a table, an eighth is planned; its application fails, and says too much."""
    made = World(tmp_path)
    given = tmp_path / "given"
    for folder in (given, made.here, tmp_path / "lake", tmp_path / "home", tmp_path / "tmp"):
        folder.mkdir(mode=0o700, exist_ok=True)
    monkeypatch.chdir(made.here)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("state", "data", "cache", "config"):
        monkeypatch.setenv(f"XDG_{name.upper()}_HOME", str(tmp_path / "home" / name))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    for name in ("AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "SPARK_MY_TOKEN"):
        monkeypatch.setenv(name, SECRET)
    query = CheckpointBuilder(made.checkpoint)
    query.run(7)
    query.plan()
    table(made.table, QUERY_ID, 7)
    (given / "client.properties").write_text(
        f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={JAAS}\n"
    )
    (given / "app.py").write_text(f"import sys\nprint({ERROR!r})\nraise ValueError({f'{BROKEN_ROW} {ERROR}'!r})\n")
    (given / "driver.log").write_text(
        f"26/11/21 12:00:00 ERROR MicroBatchExecution: Query orders [id = {QUERY_ID}, runId = {QUERY_ID}]"
        f" terminated with error\norg.postgresql.util.PSQLException: {BROKEN_ROW} {ERROR}\n"
        "\tat org.postgresql.Driver.x(Driver.java:1)\n"
    )
    told = {
        "command": [
            sys.executable,
            str(given / "app.py"),
            "--password",
            SECRET,
            "--conf",
            f"spark.my.password={SECRET}",
        ],
        "checkpoint": str(made.checkpoint),
        "sink": str(made.table),
        "driver_check": ["sh", "-c", "true", "--token", SECRET],
    }
    lines = [f"{name} = {json.dumps(value)}" for name, value in told.items()]
    fenced = [f"command = {json.dumps(told['command'])}", f'checkpoint = "{tmp_path}/lake/none"', f'sink = "{URL}"']
    (made.here / "lastgood.toml").write_text(
        "\n".join(
            [
                f'ledger = "sqlite:///{tmp_path}/home/ledger.db"',
                *("[pipeline.orders]", *lines, "[pipeline.orders.env]", f'DB_PASSWORD = "{SECRET}"'),
                *("[pipeline.orders.policy]", "max_attempts = 0"),
                *("[pipeline.fenced]", *fenced, "[pipeline.fenced.policy]", "max_attempts = 0", ""),
            ]
        )
    )
    cause = ChainedException(
        language="java", class_name="x.E", message=f"{BROKEN_ROW} {ERROR}", message_parameters={"v": ROW}
    )
    failure = RecordedFailure(message=ERROR, causes=(cause,))
    records = AsTold(open_record_taker(locate_records(parse_location(str(made.checkpoint)))))
    records.write([Terminated(recorded_at_ms=1, query_id=QUERY_ID, failure=failure).to_json()])
    records.close()
    yield made
    redact_nothing_else()


def leaves(group: click.Group, *before: str) -> Iterator[tuple[str, ...]]:
    """Every verb, as words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, *before, name)
        else:
            yield (*before, name)


def command_of(words: tuple[str, ...]) -> click.Command:
    """What the words call."""
    command: click.Command = command_line
    for word in words:
        assert isinstance(command, click.Group)
        found = command.get_command(click.Context(command), word)
        assert found is not None
        command = found
    return command


LEAVES = list(leaves(command_line))


def arguments(world: World, command: click.Command) -> list[str]:
    """Its arguments, as somebody gives them who has this lake."""
    known: dict[str, list[str]] = {
        "target": [str(world.checkpoint)],
        "plan": [str(world.here / "plan.json")],
        "recovery": ["last"],
        "names": ["orders"],
    }
    found: list[str] = []
    for each in command.params:
        if isinstance(each, click.Argument) and each.required:
            choices = each.type.choices if isinstance(each.type, click.Choice) else [SPELLED[0]]
            found += known.get(str(each.name), [str(choices[0])])
        elif isinstance(each, click.Argument):
            found += known.get(str(each.name), [])
    return found


def tries(world: World, command: click.Command) -> Iterator[list[str]]:
    """Each of its options, with a secret in its value where it takes any."""
    spelled = itertools.cycle(PLACES)
    for number, each in enumerate(command.params):
        if not isinstance(each, click.Option) or max(each.opts, key=len) in _LEFT_OUT:
            continue
        name = max(each.opts, key=len)
        if each.is_flag:
            yield [name]
        elif isinstance(each.type, click.Path):
            given = {"kafka_config": world.root / "given/client.properties", "config": world.here / "lastgood.toml"}
            yield [name, str(given.get(str(each.name), world.here / f"given-{number}"))]
        elif name == "--log":
            yield [name, str(world.root / "given/driver.log")]
        else:
            yield [name, next(spelled)]
            yield [name, next(spelled)]


def finding(world: World, command: click.Command) -> list[str]:
    """What it takes to find the lake where no argument names it."""
    names = {name for each in command.params for name in each.opts}
    found = (
        ["--checkpoint", str(world.checkpoint)]
        if "--checkpoint" in names and "names" not in _arguments(command)
        else []
    )
    return [*found, *([DEAD] if DEAD in names else [])]


def _arguments(command: click.Command) -> set[str]:
    return {str(each.name) for each in command.params if isinstance(each, click.Argument)}


def test_every_verb_is_tried() -> None:
    assert {words[0] for words in LEAVES} == set(VERBS)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_no_verb_writes_what_it_was_given(world: World, words: tuple[str, ...]) -> None:
    """Each with each of its options once: most are refused, and say why."""
    command = command_of(words)
    sink = ["--sink", world.table]
    assert world.call("plan", world.checkpoint, *sink, "--goal", "replan", "-o", world.here / "plan.json").code == 0
    if "recovery" in _arguments(command):
        assert world.call("apply", world.here / "plan.json", DEAD).code == 0
    refused = [f"--none={URL}"] if words[0] in _SERVICES else []
    usual = [*words, *arguments(world, command), *finding(world, command), *refused]
    world.call(*words, f"--none={URL}")
    world.call(*words, *SPELLED)
    for output_format in ("text", "json"):
        world.call(*usual, "--format", output_format)
    for number, options in enumerate(tries(world, command)):
        world.call(*usual, *options, *(("--format", ("text", "json")[number % 2]) if "--format" not in options else ()))
    world.look()


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_a_whole_story_is_told_without_them(world: World, output_format: str) -> None:
    """Failures of the application, a person who is called, a repair, its report, and the way back."""

    def told(*words: object) -> Answer:
        return world.call(*words, "--format", output_format)

    for pipeline in ("orders", "fenced"):
        told("run", pipeline, "--check")
        told("run", pipeline, "--restart-only")  # else it waits until the database is back
        told("status", pipeline)
    assert told("run", "orders").code in (3, 71)
    assert list(Path(f"{world.checkpoint}.lastgood/incidents").iterdir())
    told("recover", "orders", "--go-on")
    told("recover", "fenced")
    told("recover", world.checkpoint, "--sink", URL)
    told("diagnose", "orders", "--log", world.root / "given/driver.log", "--save", world.here / "orders.bundle")
    told("diagnose", world.here / "orders.bundle", "--log", world.root / "given/driver.log")
    told(
        "diagnose", world.checkpoint, "--kafka", "127.0.0.1:1", "--kafka-config", world.root / "given/client.properties"
    )
    told("backup", "create", "orders")
    told("plan", "orders", "--goal", "replan", "--accept", "duplicates", "-o", world.here / "plan.json")
    assert told("apply", world.here / "plan.json").code == 0
    for verb in (["status"], ["inspect", "--all"], ["offsets"], ["verify"], ["backup", "list"]):
        told(*verb, "orders")
    told("status", world.root / "lake")
    for incident in (*Path(f"{world.checkpoint}.lastgood/incidents").iterdir(),):
        told(
            "report",
            incident.stem,
            "--checkpoint",
            world.checkpoint,
            "-o",
            world.here / f"{incident.stem}.{output_format}",
        )
        told("report", incident.stem, "--checkpoint", world.checkpoint)
    assert told("undo", "last", "--checkpoint", world.checkpoint, DEAD).code == 0
    assert any(world.own_words(file) and SECRET in file.read_text() for file in world.written()), "nothing was said"
    world.look()


def test_what_is_looked_for_is_found() -> None:
    """Else the other tests would say nothing."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", gzip.compress(SECRET.encode() * 9))
    assert SECRET.encode() not in packed.getvalue()
    assert any(SECRET.encode() in content for _, content in unpacked("x", packed.getvalue()))
