from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lastgood.errors import ConfigError, UsageError
from lastgood.settings.config import (
    Config,
    ConfiguredQuery,
    Kafka,
    choose_pipeline,
    make_pipeline_of_command,
    parse_duration,
)
from lastgood.sources.kafka.start_files import StartFile, StartForm

FULL = """
[pipeline.orders]
command    = ["spark-submit", "orders.py"]
checkpoint = "s3a://lake/chk/orders"
sink       = "delta:s3a://lake/orders"
txn_app_id = "orders-etl"
topics     = ["orders"]
offset_columns = "partition,offset"
source_replays = true
cwd        = "app"
max_downtime = "3d"
mirror_state = true
mirror_state_every = "1h"
standby    = true
standby_memory = "1500 MB"
class_archive = true
restart_in_session = true
env        = { STAGE = "test" }
kafka      = { bootstrap = "broker:9092", config = "client.properties" }

[pipeline.orders.query.late]
checkpoint = "s3a://lake/chk/late"

[pipeline.orders.policy]
max_attempts = 3
backoff = "500ms"
backoff_max = "2m"
grace = 5
same_batch = 2
restart_within = "90s"
stable_lag = 4
stall_after = "30m"
after_outage = "1h"
outage_start = "stable_lag"
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "lastgood.toml"
    path.write_text(text)
    return path


def refused(folder: Path, text: str) -> ConfigError:
    with pytest.raises(ConfigError) as raised:
        Config(write(folder, text)).pipelines()
    return raised.value


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    pipeline = Config(write(tmp_path, FULL)).pipelines()["orders"]
    assert pipeline.command == ("spark-submit", "orders.py")
    assert pipeline.queries == (
        ConfiguredQuery(
            name="orders",
            checkpoint="s3a://lake/chk/orders",
            sink="delta:s3a://lake/orders",
            txn_app_id="orders-etl",
            topics=("orders",),
            offset_columns="partition,offset",
            source_replays=True,
        ),
        ConfiguredQuery(name="late", checkpoint="s3a://lake/chk/late"),
    )
    assert pipeline.kafka == Kafka(bootstrap="broker:9092", config=tmp_path / "client.properties")
    assert pipeline.max_downtime_ms == 3 * 86_400_000
    assert pipeline.mirror_state_seconds == 3600
    assert (pipeline.standby, pipeline.standby_memory) == (True, 1_500_000_000)
    assert (pipeline.class_archive, pipeline.restart_in_session) == (True, True)
    assert (pipeline.cwd, pipeline.env) == (tmp_path / "app", {"STAGE": "test"})
    assert (pipeline.policy.max_attempts, pipeline.policy.backoff_seconds) == (3, 0.5)
    assert (pipeline.policy.backoff_max_seconds, pipeline.policy.grace_seconds) == (120, 5)
    assert (pipeline.policy.same_batch, pipeline.policy.restart_within_seconds) == (2, 90)
    assert (pipeline.policy.stable_lag, pipeline.policy.stall_after_seconds) == (4, 1800)
    assert (pipeline.policy.after_outage_seconds, pipeline.policy.outage_start) == (3600, "stable_lag")
    assert (pipeline.is_configured, pipeline.config.path) == (True, tmp_path / "lastgood.toml")


def test_a_command_is_enough(tmp_path: Path) -> None:
    pipeline = Config(write(tmp_path, '[pipeline.a]\ncommand = ["x"]')).pipelines()["a"]
    assert (pipeline.queries, pipeline.kafka, pipeline.policy.max_attempts) == ((), None, 5)
    assert pipeline.policy.after_outage_seconds is None


@pytest.mark.parametrize(
    ("told", "seconds"), [("", None), ("mirror_state = false", None), ("mirror_state = true", 600)]
)
def test_state_is_kept_where_somebody_asks_for_it(tmp_path: Path, told: str, seconds: float | None) -> None:
    pipeline = Config(write(tmp_path, f'[pipeline.a]\ncommand = ["x"]\n{told}')).pipelines()["a"]
    assert pipeline.mirror_state_seconds == seconds


def test_outage_that_is_not_said_what_to_do_about_is_left_to_a_person(tmp_path: Path) -> None:
    pipeline = Config(write(tmp_path, '[pipeline.a]\ncommand = ["x"]\npolicy.after_outage = "2h"')).pipelines()["a"]
    assert (pipeline.policy.after_outage_seconds, pipeline.policy.outage_start) == (7200, "person")


def test_missing_file_names_the_way_without_one(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as raised:
        Config(tmp_path / "lastgood.toml").pipelines()
    assert raised.value.found == "no such file"
    assert "--checkpoint" in (raised.value.next or "")


def test_broken_toml_names_line_and_column(tmp_path: Path) -> None:
    error = refused(tmp_path, "[pipeline.a]\ncommand = nothing")
    assert "line 2" in (error.found or "")


@pytest.mark.parametrize(
    ("text", "key", "found"),
    [
        ("", "pipeline", "nothing"),
        ("pipeline = 3", "pipeline", "a number"),
        ("[pipeline.a]", "pipeline.a.command", "nothing"),
        ("pipeline.a = 1", "pipeline.a", "a number"),
        ('[pipeline.a]\ncommand = "spark-submit x"', "pipeline.a.command", "'spark-submit x'"),
        ("[pipeline.a]\ncommand = []", "pipeline.a.command", "[]"),
        ("[pipeline.a]\ncommand = [1]", "pipeline.a.command", "[1]"),
        ('[pipeline.a]\ncommand = ["x"]\ncheckpoint = ""', "pipeline.a.checkpoint", "nothing"),
        (
            '[pipeline.a]\ncommand = ["x"]\nsink = "delta:/t"',
            "pipeline.a.sink",
            "sink without a checkpoint",
        ),
        ('[pipeline.a]\ncommand = ["x"]\nenv = { A = 1 }', "pipeline.a.env.A", "a number"),
        ('[pipeline.a]\ncommand = ["x"]\nkafka = {}', "pipeline.a.kafka.bootstrap", "nothing"),
        ('[pipeline.a]\ncommand = ["x"]\nquery.b = {}', "pipeline.a.query.b.checkpoint", "nothing"),
        ('[pipeline.a]\ncommand = ["x"]\npolicy.backoff = "soon"', "pipeline.a.policy.backoff", "'soon'"),
        ('[pipeline.a]\ncommand = ["x"]\npolicy.max_attempts = -1', "pipeline.a.policy.max_attempts", "-1"),
        (
            '[pipeline.a]\ncommand = ["x"]\npolicy.max_attempts = true',
            "pipeline.a.policy.max_attempts",
            "True",
        ),
        (
            '[pipeline.a]\ncommand = ["x"]\npolicy = { after_outage = "1h", outage_start = "earliest" }',
            "pipeline.a.policy.outage_start",
            "'earliest'",
        ),
        (
            '[pipeline.a]\ncommand = ["x"]\npolicy.outage_start = "at_sink"',
            "pipeline.a.policy.outage_start",
            "outage_start without after_outage",
        ),
        (
            '[pipeline.a]\ncommand = ["x"]\nmirror_state_every = "1h"',
            "pipeline.a.mirror_state_every",
            "mirror_state_every without mirror_state",
        ),
        (
            '[pipeline.a]\ncommand = ["x"]\nmirror_state = true\nmirror_state_every = "500ms"',
            "pipeline.a.mirror_state_every",
            "0.5 s",
        ),
        (
            '[pipeline.a]\ncommand = ["x"]\nstandby_memory = "1GB"',
            "pipeline.a.standby_memory",
            "standby_memory without standby",
        ),
        (
            '[pipeline.a]\ncommand = ["x"]\nstandby = true\nstandby_memory = "much"',
            "pipeline.a.standby_memory",
            "'much'",
        ),
        ('[pipelines.a]\ncommand = ["x"]', "pipeline", "nothing"),
    ],
)
def test_what_cannot_be_understood_is_named_by_its_key(tmp_path: Path, text: str, key: str, found: str) -> None:
    error = refused(tmp_path, text)
    assert error.subject == f"{tmp_path / 'lastgood.toml'}: {key}"
    assert error.found == found


def test_unknown_key_is_refused_and_the_nearest_one_named(tmp_path: Path) -> None:
    error = refused(tmp_path, '[pipeline.a]\ncommand = ["x"]\nchekpoint = "/c"')
    assert error.subject == f"{tmp_path / 'lastgood.toml'}: pipeline.a.chekpoint"
    assert error.next == "did you mean 'checkpoint'?"


def test_pipeline_is_chosen_by_name_or_because_it_is_the_only_one(tmp_path: Path) -> None:
    config = Config(write(tmp_path, '[pipeline.a]\ncommand = ["x"]'))
    assert choose_pipeline(config, "a") is choose_pipeline(config, None)


def test_unknown_pipeline_names_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, '[pipeline.orders]\ncommand = ["x"]\n[pipeline.clicks]\ncommand = ["y"]')
    with pytest.raises(UsageError) as raised:
        choose_pipeline(Config(path), "order")
    again = f"lastgood run orders --config {path}"
    assert (raised.value.found, raised.value.next) == ("pipelines orders, clicks", again)
    with pytest.raises(UsageError, match="which pipeline"):
        choose_pipeline(Config(path), None)


def test_command_line_pipeline_is_named_after_its_script() -> None:
    pipeline = make_pipeline_of_command(["spark-submit", "--master", "local[2]", "jobs/orders.py", "x.py"], ["/c"])
    assert (pipeline.name, pipeline.queries[0].checkpoint) == ("orders", "/c")
    assert make_pipeline_of_command(["/bin/start"], []).name == "start"
    told = make_pipeline_of_command(["/bin/start"], ["/c"], "delta:/t", "broker:9092")
    assert (told.queries[0].sink, told.kafka) == ("delta:/t", Kafka(bootstrap="broker:9092"))


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("2 h", 7200), (3, 3)])
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", -1, None, True, "1w", []])
def test_durations_that_are_none(text: object) -> None:
    with pytest.raises(ValueError, match="no duration"):
        parse_duration(text)


def test_ledger_is_that_of_the_pipeline_else_that_of_the_file(tmp_path: Path) -> None:
    own = '[pipeline.a]\ncommand = ["x"]\nledger = "postgresql://me:geh3im@db/streams"\n'
    pipelines = Config(
        write(tmp_path, f'ledger = "history/ledger.db"\n{own}[pipeline.b]\ncommand = ["x"]\n')
    ).pipelines()
    assert str(pipelines["a"].ledger) == "postgresql://me@db/streams"
    assert pipelines["b"].ledger is not None
    assert pipelines["b"].ledger.path == tmp_path / "history" / "ledger.db"
    assert "geh3im" not in repr(pipelines)
    assert Config(write(tmp_path, '[pipeline.c]\ncommand = ["x"]\n')).pipelines()["c"].ledger is None


def test_ledger_that_cannot_be_meant_is_named_without_its_password(tmp_path: Path) -> None:
    error = refused(tmp_path, 'ledger = "mysql://me:geh3im@db/streams"\n[pipeline.a]\ncommand = ["x"]\n')
    assert (error.subject, error.found) == (f"{tmp_path}/lastgood.toml: ledger", "'mysql:…'")
    assert "geh3im" not in str(error.to_json())


VIA = """
[pipeline.orders]
command = ["x"]
checkpoint = "/chk"
[pipeline.orders.policy]
via = "app-config"
"""


@pytest.mark.parametrize(
    ("text", "file"),
    [
        ('start_file = "conf/start.json"', StartFile("FOLDER/conf/start.json")),
        ('start_file = "/etc/start.json"\nstart_form = "json"', StartFile("/etc/start.json")),
        (
            'start_file = "s3a://conf/app.properties"\nstart_form = "properties"\nstart_key = "orders.start"',
            StartFile("s3a://conf/app.properties", StartForm.PROPERTIES, "orders.start"),
        ),
        (
            'start_file = "spark-defaults.conf"\nstart_form = "spark-defaults"\nstart_key = "spark.orders.start"',
            StartFile("FOLDER/spark-defaults.conf", StartForm.SPARK_DEFAULTS, "spark.orders.start"),
        ),
    ],
)
def test_application_is_told_by_a_file_of_its_own(tmp_path: Path, text: str, file: StartFile) -> None:
    policy = Config(write(tmp_path, VIA + text)).pipelines()["orders"].policy
    place = file.location.replace("FOLDER", str(tmp_path))
    assert (policy.via, policy.takes_any_number) == (replace(file, location=place), False)
    assert (
        Config(write(tmp_path, f"{VIA}{text}\ntakes_any_number = true")).pipelines()["orders"].policy.takes_any_number
    )


@pytest.mark.parametrize(
    ("text", "key", "expected"),
    [
        ("", "start_file", "startingOffsets"),
        ('start_file = "http://x/y"', "start_file", "one of"),
        ('start_file = "f"\nstart_form = "yaml"', "start_form", "spark-defaults"),
        ('start_file = "f"\nstart_form = "properties"', "start_key", "the key under which it stands"),
        ('start_file = "f"\nstart_key = "k"', "start_key", "no key"),
        ('start_file = "f"\nstart_form = "spark-defaults"\nstart_key = "k"', "start_key", "begins with spark."),
        ('start_file = "f"\ntakes_any_number = 1', "takes_any_number", "true or false"),
    ],
)
def test_start_file_that_cannot_be_meant_is_named_by_its_key(
    tmp_path: Path, text: str, key: str, expected: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        Config(write(tmp_path, VIA + text)).pipelines()
    assert f"'pipeline.orders.policy.{key}'" in raised.value.sentence
    assert expected in (raised.value.expected or "")


@pytest.mark.parametrize("key", ["start_file", "start_form", "start_key"])
def test_start_file_without_its_purpose_is_refused(tmp_path: Path, key: str) -> None:
    text = VIA.replace("via =", f"{key} =")
    with pytest.raises(ConfigError) as raised:
        Config(write(tmp_path, text)).pipelines()
    assert raised.value.expected == 'via = "app-config" beside it'
    with pytest.raises(ConfigError, match="takes_any_number"):
        Config(write(tmp_path, VIA.replace('via = "app-config"', "takes_any_number = true"))).pipelines()


def test_one_file_tells_one_query_where_to_begin(tmp_path: Path) -> None:
    late = '[pipeline.orders.query.late]\ncheckpoint = "/late"\n'
    with pytest.raises(ConfigError) as raised:
        Config(write(tmp_path, f'{VIA}start_file = "f"\n{late}')).pipelines()
    assert raised.value.found == "2 queries"
