"""State made anew by the query's own batches, without its sink: what follows is what came of a query never harmed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer
from conformance.sparks import RunningSpark, Sparks
from reading import read_files
from repair.windows import CHANGELOG, CHECKPOINT_V2, HDFS, ROCKSDB
from typed import restore_ctrl_c

import lastgood
from lastgood.lab.kafka import KafkaBroker
from lastgood.lab.spark import SparkEnvironment, make_quick_conf, submit_command, submit_env
from lastgood.observe.evidence import EvidenceOptions
from lastgood.operations.rebuild import rebuild
from lastgood.planning.draft import RepairRefusedError
from lastgood.planning.plan import Plan
from lastgood.planning.price import Guarantee, Waiver
from lastgood.process.java import Java
from lastgood.recovery.applying import WaiverNeededError
from lastgood.recovery.plans import PlanOptions
from lastgood.recovery.rebuilding import RebuildDivergedError, RebuildFailedError
from lastgood.settings.target import resolve_target

pytestmark = pytest.mark.spark

LASTGOOD = Path(sys.executable).parent / "lastgood"
SCRIPT = Path(__file__).with_name("rebuilt_app.py")
SEED = os.environ.get("LASTGOOD_SEED", "1")
BEFORE, BATCHES = 6, 9
FORMATS = {"hdfs": HDFS, "rocksdb": ROCKSDB, "changelog": CHANGELOG, "v2": CHECKPOINT_V2}
KINDS = [
    "inner",
    "leftOuter",
    "rightOuter",
    "fullOuter",
    "distinct within",
    "distinct",
    "sessions",
    "chain",
    "function",
    "totals",
]
_WRITTEN = 1_795_000_000


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def make_events(number: int, chance: random.Random) -> list[str]:
    """Those of one batch, out of order; some come too late, and keys come again."""
    found = []
    for each in range(40):
        seconds = 3600 + number * 120 + chance.randint(-500, 120)
        at = f"2026-03-01T{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}Z"
        found.append(
            json.dumps({"t": at, "k": chance.randrange(30), "side": chance.choice("ab"), "v": number * 100 + each})
        )
    return found


@dataclass
class Harmed:
    """A query whose state is harmed, and a copy of it that never was."""

    spark: RunningSpark
    environment: SparkEnvironment
    java: Java
    jars: tuple[Path, ...]
    folder: Path
    kind: str
    sink: str
    conf: Mapping[str, str]
    broker: KafkaBroker | None = None
    topic: str = ""
    delay: str = "5 minutes"
    chance: random.Random = field(default_factory=lambda: random.Random(f"rebuild {SEED}"))

    @property
    def checkpoint(self) -> Path:
        return self.folder / "chk"

    @property
    def table(self) -> Path:
        return self.folder / "table"

    def say(self, name: str = "") -> dict[str, Any]:
        source: dict[str, Any] = {"input": str(self.folder / "input")}
        if self.broker is not None:
            source = {"bootstrap": self.broker.bootstrap, "topic": self.topic, "limit": 40}
        places = {"checkpoint": f"{self.checkpoint}{name}", "table": f"{self.table}{name}"}
        mode = "update" if self.kind == "totals" else "append"
        own = {"kind": self.kind, "sink": self.sink, "mode": mode, "delay": self.delay}
        if self.environment.version != "4.2.0":
            own |= {"libraries": sysconfig.get_path("purelib")}
        if self.kind.endswith("by the clock"):
            files = len(list((self.folder / "input").iterdir()))
            own |= {"trigger": {"processingTime": "200 milliseconds"}, "stop_after": files - 1}
        return {**own, "conf": dict(self.conf), **places, **source}

    def feed(self, numbers: range) -> None:
        for number in numbers:
            lines = make_events(number, self.chance)
            if self.broker is not None:
                producer = Producer({"bootstrap.servers": self.broker.bootstrap})
                for each, line in enumerate(lines):
                    producer.produce(self.topic, line, partition=each % 2)
                assert producer.flush(30) == 0
                continue
            file = self.folder / "input" / f"{number:03d}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join(lines))
            os.utime(file, (_WRITTEN + number, _WRITTEN + number))

    def start(self, name: str = "", **more: Any) -> str | None:
        error: str | None = self.spark.call(SCRIPT, "start", **{**self.say(name), **more})["error"]
        return error

    def rows(self, name: str = "") -> list[str]:
        rows: list[str] = self.spark.call(SCRIPT, "rows", **self.say(name))["rows"]
        return rows

    def begin(self) -> None:
        """Both have read the same."""
        if self.broker is not None:
            self.broker.create_topic(self.topic, partitions=2)
        self.feed(range(BEFORE))
        assert self.start() is None
        if not self.kind.endswith("by the clock"):
            assert self.start("-never-harmed") is None

    def kept(self) -> list[str]:
        """The state after the newest committed batch."""
        newest = max(int(each.name) for each in (self.checkpoint / "commits").iterdir() if each.name.isdecimal())
        read: list[dict[str, str]] = [{}]
        if self.kind.startswith("processor"):
            read = [{"stateVarName": "total"}, {"stateVarName": "sides"}, {"readRegisteredTimers": "true"}]
        rows: list[str] = self.spark.call(SCRIPT, "kept", **self.say(), batch=newest, read=read)["rows"]
        return rows

    def finish(self) -> None:
        """The rest comes, and both read it."""
        self.feed(range(BEFORE, BATCHES))
        assert self.start() is None
        assert self.start("-never-harmed") is None
        assert self.rows() == self.rows("-never-harmed")

    def lose(self, version: int) -> None:
        """All that one store has from a version on; 0: the state as a whole."""
        state = self.checkpoint / "state"
        if not version:
            shutil.rmtree(state)
            return
        store = self.chance.choice(sorted({each.parent for each in _list_versions(state)}))
        for file in _list_versions(store):
            if int(file.name.partition(".")[0].partition("_")[0]) >= version:
                file.unlink()

    def command(self, **told: Any) -> list[str]:
        conf = {**make_quick_conf(self.environment, self.java, self.jars), **self.conf}
        return submit_command(SCRIPT, [json.dumps({**self.say(), **told})], environment=self.environment, conf=conf)

    @property
    def env(self) -> dict[str, str]:
        return submit_env(self.environment, self.java, os.environ)

    def forget_plans(self, newest: int) -> None:
        """As Spark does with those of batches long past."""
        last = max(int(each.name) for each in (self.checkpoint / "offsets").iterdir() if each.name.isdecimal())
        for log in ("offsets", "commits"):
            for batch in range(last + 1 - newest):
                for name in (f"{batch}", f".{batch}.crc"):
                    (self.checkpoint / log / name).unlink(missing_ok=True)

    def rebuild(
        self, *, new_code: bool = False, is_gathered: bool = False, accept: tuple[Waiver, ...] = (), **told: Any
    ) -> Plan:
        sinks = () if self.sink == "foreachBatch" else (str(self.table),)
        kafka = None if self.broker is None else self.broker.bootstrap
        evidence = EvidenceOptions(sinks=sinks, kafka=kafka)
        target = resolve_target(str(self.checkpoint))
        if self.sink == "foreachBatch" and not accept:
            accept = (Waiver.DUPLICATES,)  # nobody can ask it
        if self.kind == "distinct within":
            accept = (Waiver.DUPLICATES, Waiver.LOSS)  # exact here, where each batch is one file
        options = PlanOptions(evidence=evidence, accept=accept)
        plan = rebuild(target, self.command(**told), options, environment=self.env, new_code=new_code)
        assert (plan.guarantee is Guarantee.LOSSY) == (new_code or is_gathered or self.kind == "distinct within")
        assert plan.needs == ()
        return plan


def _list_versions(folder: Path) -> list[Path]:
    return [each for each in folder.rglob("[0-9]*.*") if each.suffix in (".delta", ".snapshot", ".changelog", ".zip")]


@pytest.fixture
def harmed(sparks: Sparks, spark_of: Any, java: Java, spark_jars: tuple[Path, ...], tmp_path: Path) -> Any:
    def make(kind: str, sink: str, form: str, version: str = "4.2.0", **more: Any) -> Harmed:
        conf = {"spark.sql.shuffle.partitions": "2", **FORMATS[form]}
        jars = spark_jars if version == "4.2.0" else ()
        query = Harmed(sparks.of(version), spark_of(version), java, jars, tmp_path, kind, sink, conf, **more)
        query.begin()
        return query

    return make


def test_join_goes_on_as_if_its_state_had_never_been_lost(harmed: Any) -> None:
    query = harmed("leftOuter", "parquet", "hdfs")
    query.lose(4)
    before = list_files(query.folder)
    plan = query.rebuild()
    assert {path for path in list_files(query.folder) if "/rebuilt/" not in path} - {"chk.lastgood/run.lock"} == before
    assert (plan.guarantee, plan.promise.outcome) == (Guarantee.EXACTLY_ONCE, "resumes")
    lastgood.apply(plan, driver_is_dead=True)
    query.finish()


@pytest.mark.proof
def test_what_was_taken_back_is_made_anew_once_more(harmed: Any) -> None:
    query = harmed("leftOuter", "parquet", "hdfs")
    query.lose(4)
    before = list_files(query.folder)
    recovery = lastgood.apply(query.rebuild(), driver_is_dead=True)
    lastgood.undo(recovery.id, checkpoint=str(query.checkpoint), driver_is_dead=True)
    assert {path for path in list_files(query.folder) if "chk.lastgood/" not in path} == before
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    assert len({path.split("/")[2] for path in list_files(query.folder) if "/rebuilt/" in path}) == 1  # the newest
    query.finish()


def list_files(folder: Path) -> set[str]:
    found = {str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file()}
    return {path for path in found if path.startswith(("chk/", "chk.lastgood/", "table/"))}


@pytest.mark.proof
def test_what_does_not_run_as_it_ran_is_not_brought(harmed: Any) -> None:
    query = harmed("sessions", "parquet", "hdfs")
    with pytest.raises(RepairRefusedError, match="no state that would have to be made anew"):
        query.rebuild()
    query.lose(4)
    with pytest.raises(RebuildDivergedError) as diverged:
        query.rebuild(delay="6 minutes")
    assert "watermark" in (diverged.value.found or "")
    with pytest.raises(RebuildFailedError) as failed:
        query.rebuild(where="assert_true(v < 0) is null")
    assert "is not true" in (failed.value.found or "")
    with pytest.raises(RebuildFailedError) as ended:
        query.rebuild(checkpoint=str(query.folder / "chk-other"))
    assert "chk-other" in (ended.value.found or "")
    assert not [path for path in list_files(query.folder) if "/rebuilt/" in path]
    plan = query.rebuild(beside=str(query.folder / "beside"))  # whose start is left out; its end is another matter
    lastgood.apply(plan, driver_is_dead=True)
    query.finish()


def write_policy(query: Harmed, *lines: str) -> list[str]:
    """A configuration that has the state made anew; the words by which it is named."""
    config = query.folder / "lastgood.toml"
    words = ", ".join(json.dumps(word) for word in query.command())
    text = f"[pipeline.orders]\ncommand = [{words}]\ncheckpoint = {json.dumps(str(query.checkpoint))}\n"
    text += f'sink = {json.dumps(str(query.table))}\ndriver_check = ["true"]\n[pipeline.orders.policy]\n'
    config.write_text("\n".join([text, 'on_state_loss = "rebuild"', *lines]) + "\n")
    return ["orders"]


def run_lastgood(query: Harmed, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([LASTGOOD, *words], env=query.env, cwd=query.folder, capture_output=True, text=True)


@pytest.mark.proof
def test_run_makes_anew_what_is_lost_and_goes_on(harmed: Any) -> None:
    query = harmed("leftOuter", "parquet", "hdfs")
    query.lose(4)
    words = write_policy(query, "max_replay = 1")
    refused = run_lastgood(query, "run", *words)
    assert refused.returncode == 3, refused.stderr
    write_policy(query)
    query.feed(range(BEFORE, BATCHES))
    done = run_lastgood(query, "run", *words, "--format", "json")
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    (begun,) = [each["sentence"] for each in told if each.get("condition") == "STATE_REBUILDING"]
    assert begun == "batches 3 to 6 run again, without a sink, to make the state anew"
    (repaired,) = [each for each in told if each["event"] == "repaired"]
    assert repaired["guarantee"] == "exactly_once"
    assert query.start("-never-harmed") is None
    assert query.rows() == query.rows("-never-harmed")


@pytest.mark.proof
def test_session_makes_anew_what_is_lost_without_another_driver(harmed: Any) -> None:
    query = harmed("leftOuter", "parquet", "hdfs")
    query.lose(0)
    before = read_files(query.checkpoint)
    for told, word in (({"kind": "sessions"}, "the code of the query"), ({"delay": "6 minutes"}, "did not come to")):
        assert word in query.spark.call(SCRIPT, "rebuild", **{**query.say(), **told})["error"]
    told = query.spark.call(SCRIPT, "rebuild", **{**query.say(), "checkpoint": f"{query.checkpoint}-never-harmed"})
    assert "no state that would have to be made anew" in told["error"]
    assert read_files(query.checkpoint) == before
    assert not is_left(query)
    done = query.spark.call(SCRIPT, "rebuild", **query.say())
    assert done == {"error": None, "guarantee": "exactly_once"}
    query.finish()


@pytest.mark.proof
def test_recover_makes_anew_what_is_lost(harmed: Any) -> None:
    query = harmed("sessions", "parquet", "hdfs")
    query.lose(0)
    words = write_policy(query)
    before = read_files(query.checkpoint)
    seen = run_lastgood(query, "recover", *words, "--observe")
    assert (seen.returncode, read_files(query.checkpoint)) == (0, before)
    assert "batches 0 to 6 would run again" in seen.stdout
    done = run_lastgood(query, "recover", *words, "--driver-is-dead")
    assert done.returncode == 0, done.stderr
    query.finish()


@pytest.mark.proof
def test_run_that_is_told_to_stop_meanwhile_leaves_the_query_as_it_was(harmed: Any) -> None:
    query = harmed("leftOuter", "parquet", "hdfs")
    query.lose(0)
    words = write_policy(query)
    before = read_files(query.checkpoint)
    with subprocess.Popen([LASTGOOD, "run", *words], env=query.env, cwd=query.folder) as process:
        await_batch(query, process)
        begun = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert psutil.wait_procs(begun, timeout=60)[1] == []
    assert read_files(query.checkpoint) == before
    assert not is_left(query)
    assert run_lastgood(query, "run", *words).returncode == 0
    query.finish()


@pytest.mark.proof
@pytest.mark.parametrize("version", [0, 4])
def test_other_code_makes_no_state_anew(harmed: Any, version: int) -> None:
    query = harmed("sessions", "parquet", "hdfs")
    query.feed(range(BEFORE, BEFORE + 1))
    done = run_lastgood(query, "run", *write_policy(query))
    assert done.returncode == 0, done.stderr
    assert query.start("-never-harmed") is None
    assert Path(f"{query.checkpoint}.lastgood/code.json").exists()
    query.lose(version)
    for kind in ("distinct", "longer sessions"):
        with pytest.raises(RebuildFailedError) as failed:
            query.rebuild(kind=kind)
        assert "CODE_DOES_NOT_FIT" in (failed.value.found or "")
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    query.feed(range(BEFORE + 1, BATCHES))
    assert query.start() is None
    assert query.start("-never-harmed") is None
    assert query.rows() == query.rows("-never-harmed")


@pytest.mark.proof
@pytest.mark.parametrize("form", FORMATS)
def test_new_code_makes_its_own_state_and_goes_on_with_it(harmed: Any, form: str) -> None:
    """What was sent stays; what is sent from then on is what the new code sends that was there from the beginning."""
    query = harmed("sessions", "parquet", form)
    code = {"kind": "means of sessions"}
    new = {**query.say("-new"), **code}
    assert query.spark.call(SCRIPT, "start", **new)["error"] is None
    sent, sent_by_new = query.rows(), query.rows("-new")
    query.feed(range(BEFORE, BEFORE + 1))
    assert query.start(**code) is not None  # Spark does not go on, and leaves a plan behind
    before = read_files(query.checkpoint)
    with pytest.raises(WaiverNeededError):
        query.rebuild(new_code=True, **code)
    assert read_files(query.checkpoint) == before
    plan = query.rebuild(new_code=True, accept=(Waiver.LOSS,), **code)
    assert plan.guarantee is Guarantee.LOSSY
    recovery = lastgood.apply(plan, driver_is_dead=True)
    lastgood.undo(recovery.id, checkpoint=str(query.checkpoint), driver_is_dead=True)
    assert read_files(query.checkpoint) == before
    lastgood.apply(query.rebuild(new_code=True, accept=(Waiver.LOSS,), **code), driver_is_dead=True)
    query.feed(range(BEFORE + 1, BATCHES))
    assert query.start(**code) is None
    assert query.spark.call(SCRIPT, "start", **new)["error"] is None
    since = Counter(query.rows()) - Counter(sent)
    assert since == Counter(query.rows("-new")) - Counter(sent_by_new)
    assert since
    assert Counter(sent) <= Counter(query.rows())


@pytest.mark.proof
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_whoever_stops_it_finds_the_query_as_it_was_and_begins_anew(harmed: Any, how: signal.Signals) -> None:
    query = harmed("leftOuter", "parquet", "hdfs")
    query.lose(0)
    before = read_files(query.checkpoint)
    words = ["rebuild", str(query.checkpoint), "--sink", str(query.table), "--", *query.command()]
    with subprocess.Popen([LASTGOOD, *words], env=query.env, preexec_fn=restore_ctrl_c) as process:
        await_batch(query, process)
        begun = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(how)
        assert process.wait(60) == (130 if how is signal.SIGINT else -signal.SIGKILL)
    assert psutil.wait_procs(begun, timeout=60)[1] == []
    assert read_files(query.checkpoint) == before
    assert is_left(query) == (how is signal.SIGKILL)
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    query.finish()


def await_batch(query: Harmed, process: subprocess.Popen[bytes]) -> None:
    """Until a batch has run again; which one, chance tells."""
    wanted = query.chance.randrange(BEFORE - 1)
    deadline = time.monotonic() + 180
    while not list(query.folder.glob(f"chk.lastgood/rebuilt/*/checkpoint/commits/{wanted}")):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)


def is_left(query: Harmed) -> bool:
    return any(each.is_file() for each in (query.folder / "chk.lastgood/rebuilt").rglob("*"))


@pytest.mark.proof
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("version", [0, 4])
def test_every_operator_and_store(harmed: Any, kind: str, form: str, version: int) -> None:
    sink = {"totals": "foreachBatch", "distinct": "delta"}.get(kind, "parquet")
    query = harmed(kind, sink, form)
    query.lose(version)
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    query.finish()


IN_ANY_BATCH = [each for each in KINDS if each not in ("distinct within", "function")]
"""Kinds whose state goes by no order of rows, and not by which rows came in one batch."""


@pytest.mark.proof
@pytest.mark.parametrize("kind", IN_ANY_BATCH)
@pytest.mark.parametrize("form", FORMATS)
def test_what_batches_have_read_whose_plans_are_gone_is_read_at_once(harmed: Any, kind: str, form: str) -> None:
    """With nothing that came too late it is what it was."""
    sink = {"totals": "foreachBatch", "distinct": "delta"}.get(kind, "parquet")
    query = harmed(kind, sink, form, delay="9 minutes")
    query.lose(0)
    query.forget_plans(3)
    accept = (Waiver.DUPLICATES, Waiver.LOSS)
    plan = query.rebuild(is_gathered=True, accept=accept)
    assert any("are gone" in each for each in plan.rests_on)
    lastgood.apply(plan, driver_is_dead=True)
    assert not [path for path in list_files(query.folder) if "/probe/" in path]
    query.finish()


@pytest.mark.proof
@pytest.mark.services
@pytest.mark.parametrize("form", ["hdfs", "v2"])
@pytest.mark.parametrize("is_expired", [False, True])
def test_what_a_topic_still_has_is_read_at_once(
    harmed: Any, broker: KafkaBroker, topic: str, form: str, *, is_expired: bool
) -> None:
    query = harmed("leftOuter", "parquet", form, broker=broker, topic=topic, delay="9 minutes")
    query.lose(0)
    query.forget_plans(2)
    if is_expired:
        broker.delete_records(topic, {0: 10})
    plan = query.rebuild(is_gathered=True, accept=(Waiver.LOSS,))
    named = [each for each in plan.rests_on if "what was made of that is lost" in each]
    assert named == (
        [f"Kafka has of {topic} what is not before 0: 10: what was made of that is lost"] if is_expired else []
    )
    lastgood.apply(plan, driver_is_dead=True)
    if is_expired:
        query.feed(range(BEFORE, BATCHES))
        assert query.start() is None
    else:
        query.finish()


@pytest.mark.proof
def test_whoever_kills_it_while_it_looks_for_the_stores_can_begin_anew(harmed: Any) -> None:
    query = harmed("leftOuter", "parquet", "hdfs", delay="9 minutes")
    query.lose(0)
    query.forget_plans(3)
    before = read_files(query.checkpoint)
    words = ["rebuild", str(query.checkpoint), "--sink", str(query.table), "--accept", "loss", "--", *query.command()]
    with subprocess.Popen([LASTGOOD, *words], env=query.env) as process:
        deadline = time.monotonic() + 180
        while not list(query.folder.glob("chk.lastgood/rebuilt/*/probe/offsets/0")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        process.kill()
    assert read_files(query.checkpoint) == before
    lastgood.apply(query.rebuild(is_gathered=True, accept=(Waiver.LOSS,)), driver_is_dead=True)
    assert not [path for path in list_files(query.folder) if "/probe/" in path]
    query.finish()


@pytest.mark.proof
@pytest.mark.parametrize("form", ["rocksdb", "changelog", "v2"])
@pytest.mark.parametrize("version", [0, 4])
def test_processor_with_several_states_and_timers(harmed: Any, form: str, version: int) -> None:
    query = harmed("processor", "parquet", form)
    query.lose(version)
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    query.finish()


@pytest.mark.proof
@pytest.mark.parametrize(
    ("kind", "form"),
    [
        *(("function by the clock", form) for form in FORMATS),
        *(("processor by the clock", form) for form in ("rocksdb", "changelog", "v2")),
    ],
)
def test_timers_by_the_clock_are_those_that_the_plans_hold(harmed: Any, kind: str, form: str) -> None:
    """Another start would have others: so what is kept is compared, not what comes of it."""
    query = harmed(kind, "parquet", form)
    before = query.kept()
    assert before
    query.lose(0)
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    assert query.kept() == before
    query.feed(range(BEFORE, BATCHES))
    assert query.start() is None


@pytest.mark.proof
@pytest.mark.parametrize("spark", ["3.5.9", "4.0.5", "4.1.4", "4.3.0"])
@pytest.mark.parametrize(("kind", "form", "version"), [("leftOuter", "hdfs", 4), ("distinct within", "changelog", 0)])
def test_other_versions_of_spark(harmed: Any, spark: str, kind: str, form: str, version: int) -> None:
    query = harmed(kind, "parquet", form, spark)
    query.lose(version)
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    query.finish()


@pytest.mark.proof
@pytest.mark.parametrize("spark", ["4.0.5", "4.1.4", "4.3.0"])
@pytest.mark.parametrize(("kind", "version"), [("processor", 0), ("processor", 4), ("processor by the clock", 0)])
def test_processor_of_other_versions_of_spark(harmed: Any, spark: str, kind: str, version: int) -> None:
    query = harmed(kind, "parquet", "changelog", spark)
    before = query.kept()
    query.lose(version)
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    assert query.kept() == before
    query.feed(range(BEFORE, BATCHES))
    assert query.start() is None


@pytest.mark.proof
@pytest.mark.parametrize("form", ["hdfs", "v2"])
@pytest.mark.parametrize("version", [0, 4])
@pytest.mark.parametrize(
    ("sink", "is_in_sink"),
    [("parquet", True), ("delta", True), ("parquet", False), ("delta", False), ("foreachBatch", False)],
)
def test_batch_that_is_not_committed(harmed: Any, sink: str, form: str, version: int, *, is_in_sink: bool) -> None:
    query = harmed("leftOuter", sink, form)
    if is_in_sink:
        newest = max(int(each.name) for each in (query.checkpoint / "commits").iterdir() if each.name.isdecimal())
        for name in (f"{newest}", f".{newest}.crc"):
            (query.checkpoint / "commits" / name).unlink(missing_ok=True)
    else:
        query.feed(range(BEFORE, BEFORE + 1))
        assert "is not true" in (query.start(where="assert_true(v < 0) is null") or "")
    query.lose(version)
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    query.feed(range(BEFORE + 1, BATCHES))
    assert query.start() is None
    assert query.start("-never-harmed") is None
    assert query.rows() == query.rows("-never-harmed")


@pytest.mark.proof
@pytest.mark.services
@pytest.mark.parametrize("kind", ["fullOuter", "sessions", "function"])
@pytest.mark.parametrize("version", [0, 3])
def test_topic_is_read_again(harmed: Any, broker: KafkaBroker, topic: str, kind: str, version: int) -> None:
    query = harmed(kind, "parquet", "changelog", broker=broker, topic=topic)
    query.lose(version)
    lastgood.apply(query.rebuild(), driver_is_dead=True)
    query.finish()
