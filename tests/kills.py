"""A query under `lastgood run`, with mirror, agent, recorder and ledger, whose driver is killed at random instants."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import psutil

import lastgood
from lastgood.checkpoint.offsets import OffsetEntry
from lastgood.lab.spark import SparkEnvironment, make_quick_conf, submit_command, submit_env
from lastgood.ledger.opening import open_ledger
from lastgood.observe.open_query import gather
from lastgood.process.java import Java
from lastgood.records.files import DRIVER_FILE, Driver, parse_driver, parse_records
from lastgood.records.record import Progress
from lastgood.settings.target import resolve_target

APP = Path(__file__).parent / "spark" / "kills_app.py"
LASTGOOD = Path(sys.executable).parent / "lastgood"
DEADLINE_SECONDS = 300
COMMITS_MAX = 12
BATCH_SECONDS = 0.4
"""A driver is killed at any instant of any of its first batches."""
PATH = os.pathsep.join([str(Path(lastgood.__file__).parents[1]), str(Path(psutil.__file__).parents[1])])
"""Where the application finds lastgood and what it needs: after pyspark, which spark-submit puts first."""


class KilledRun:
    """The run, and what it leaves behind."""

    def __init__(self, folder: Path, java: Java, spark: SparkEnvironment) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.ledger = folder / "ledger.db"
        self.agents = folder / "state" / "lastgood" / "agent" / "rows"
        conf = {
            **make_quick_conf(spark, java),
            "spark.master": "local[1]",
            "spark.driver.memory": "600m",
            "spark.sql.streaming.minBatchesToRetain": "1000000",  # so that the offset log is all that was ever planned
        }
        command = submit_command(APP, [str(self.checkpoint), f"sqlite:///{self.ledger}"], environment=spark, conf=conf)
        (folder / "lastgood.toml").write_text(f"""
ledger = "ledger.db"
[pipeline.rows]
command = {json.dumps(command)}
checkpoint = "{self.checkpoint}"
policy = {{ max_attempts = 50, backoff = "10ms", grace = "10s" }}
""")
        self._env = {
            **submit_env(spark, java, os.environ),
            "PYTHONPATH": PATH,
            "XDG_STATE_HOME": str(folder / "state"),
        }
        self._seen: set[str] = set()

    def run(self, chance: Random, kills: int) -> None:
        """Kill so many drivers, let a last one commit, stop."""
        command = [LASTGOOD, "run", f"--config={self.folder}/lastgood.toml", "--format=json"]
        with (
            (self.folder / "events").open("wb") as events,
            subprocess.Popen(command, env=self._env, cwd=self.folder, stdout=events, stderr=subprocess.STDOUT) as run,
        ):
            try:
                for _ in range(kills):
                    driver = self._new_driver(run)
                    self._await_commits(run, chance.randrange(COMMITS_MAX))
                    time.sleep(chance.uniform(0, BATCH_SECONDS))
                    python = psutil.Process(driver.pid)
                    chance.choice([python, python.parent() or python]).kill()  # the Python or the JVM of the driver
                self._new_driver(run)
                self._await_commits(run, 2)  # the batch that the kill left, and one more
            finally:
                run.send_signal(signal.SIGTERM)
                code = run.wait(DEADLINE_SECONDS)
        told = (self.folder / "events").read_text()
        assert code == 128 + signal.SIGTERM, told
        events = [json.loads(line) for line in told.splitlines()]
        assert len([event for event in events if event["event"] == "ended"]) == kills + 1
        # An agent whose JVM was killed may say so, and of a busy ledger that it is tried again: `check_history` shows
        # that it holds all in the end. The mirror has no reason to complain.
        noticed = {event["condition"] for event in events if event["event"] == "noticed"}
        assert noticed <= {"AGENT_TROUBLE", "FIRST_START_UNPROVEN", "LEDGER_NOT_WRITTEN"}, told

    def logged(self, log: str) -> set[int]:
        """The batches in a log of the checkpoint."""
        folder = self.checkpoint / log
        return {int(each.name) for each in folder.iterdir() if each.name.isdigit()} if folder.is_dir() else set()

    def _new_driver(self, run: subprocess.Popen[bytes]) -> Driver:
        """The driver that has come up since the last call, once its query runs."""
        found: list[Driver] = []

        def is_there() -> bool:
            for file in self.agents.glob("*/*"):
                driver = parse_driver(file.read_bytes()) if DRIVER_FILE.fullmatch(file.name) else None
                if driver is not None and driver.queries and file.name not in self._seen:
                    self._seen.add(file.name)
                    found.append(driver)
            return found != []

        self._await(run, is_there)
        return found[0]

    def _await_commits(self, run: subprocess.Popen[bytes], more: int) -> None:
        before = len(self.logged("commits"))
        self._await(run, lambda: len(self.logged("commits")) >= before + more)

    def _await(self, run: subprocess.Popen[bytes], what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not what():
            assert run.poll() is None, (self.folder / "events").read_text()
            assert time.monotonic() < deadline, (self.folder / "events").read_text()
            time.sleep(0.02)

    def check_history(self) -> int:
        """Mirror and ledger each hold every batch that was ever planned, as it was planned; how many there are."""
        planned, committed = self.logged("offsets"), self.logged("commits")
        entries = {at: (self.checkpoint / "offsets" / str(at)).read_bytes() for at in planned}
        assert planned == set(range(len(planned)))
        assert planned - committed <= {max(planned)}
        with open_ledger(str(self.ledger), create=False) as ledger:
            (query,) = ledger.queries()
            found = ledger.batches(query, planned)
            assert ledger.batch_ids(query) == sorted(planned)
            assert (query.name, query.checkpoint) == ("rows", f"file://{self.checkpoint}")
        self.checkpoint.rename(self.folder / "lost")
        records = gather(resolve_target(str(self.checkpoint))).records()
        for at, raw in entries.items():
            mirrored = records[at].offsets
            assert isinstance(mirrored, OffsetEntry)
            assert mirrored.to_bytes() == raw
            plan = found[at].plan
            assert plan is not None
            assert dict(plan.ends) == {line.source_id: line.text for line in mirrored.sources}
            assert found[at].is_committed == (at in committed)
        recorded = self._recorded()
        assert {at for at, batch in found.items() if batch.progress is not None} >= recorded
        assert records.keys() == planned
        return len(planned)

    def _recorded(self) -> set[int]:
        """The batches of which the agents wrote that they ended, as far as they lived to do so."""
        read = [parse_records(file.read_bytes()) for file in self.agents.glob("*/*.jsonl")]
        return {record.batch_id for each in read for record in each.records if isinstance(record, Progress)}
