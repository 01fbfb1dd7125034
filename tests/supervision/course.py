"""A random script of failures: the flights application under `lastgood run`, broken again and again, and every record.

What is lost and what comes twice has to be what the plans said, offset by offset, of each topic of the name.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import random
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.demo.stage import TOPIC, DemoStage
from lastgood.journal.incident import Incident, list_ranges
from lastgood.journal.incidents import list_incidents, read_incident
from lastgood.settings.policy import ACCEPTABLE, Policy
from lastgood.storage.reading import open_storage, parse_location
from lastgood.supervise.care import PersonNeededError
from lastgood.supervise.events import Called, Committed, Ended, PromiseChecked, Repaired, StandingBy, Started

LASTGOOD = Path(sys.executable).parent / "lastgood"
_LIMITS = (200, 500, 1000)
_CREATED_AGAIN = "created again"
_HISTORY_SECONDS = 60

Place = tuple[int, int, int]
"""How often the topic had been created again before, partition, and offset."""


class _GoneTopic:
    """A topic that is no more, since one of the same name was created."""

    def __init__(self, number: int, last_flight: int, ends: Mapping[int, int], read: Mapping[int, int]) -> None:
        self.last_flight = last_flight
        self.ends = ends
        self.unread: set[Place] = {
            (number, partition, offset)
            for partition, end in ends.items()
            for offset in range(read.get(partition, 0), end)
        }
        self.is_said = False
        """Whether a plan that was carried out said that what was unread is lost."""


class Course:
    """One script on one stage. `said` grows with every plan that costs something."""

    def __init__(self, stage: DemoStage, seed: int, *, standby: bool = False) -> None:
        """Draw what the policy allows; nothing is started. With `standby` another driver waits, warm, beside each."""
        self.stage = stage
        self.standby = standby
        self._has_standby = False
        self.chance = random.Random(seed)
        self.accept = tuple(each for each in ACCEPTABLE if self.chance.random() < 0.5)
        self.lost: Counter[Place] = Counter()
        self.doubled: Counter[Place] = Counter()
        self.is_bound = False
        self.guarantees: set[str] = set()
        """Of every plan that was carried out, or started as it stood."""
        self._read_again: set[Place] = set()
        """What was lost, and a later plan may read again: nobody knows how far."""
        self._gone: list[_GoneTopic] = []
        self.told: list[str] = [f"the policy accepts {', '.join(self.accept) or 'nothing'}"]
        self._seen: set[str] = set()
        self._mark = 0

    def play(self, steps: int) -> None:
        """Begin, break it so many times, and bring it to an end."""
        self.start()
        self.go_on()
        names = self.chance.sample(sorted(FAILURES), steps)
        for name in names:
            if self.standby and not self._has_standby:
                self._begin_standby()
            self.told.append(name)
            FAILURES[name](self)
            self.go_on()
        self.stage.settle()

    def start(self, *, standby: bool = False) -> None:
        """Start `lastgood run`."""
        self._mark = self.stage.application.start(
            Policy(accept=self.accept, backoff_seconds=0.2), limit=self.chance.choice(_LIMITS), standby=standby
        )
        self._has_standby = standby

    def _begin_standby(self) -> None:
        """Have another driver wait from now on: a run whose first start may need a repair has to ask for drivers."""
        self.stage.settle()
        self.stop()
        self.start(standby=True)
        self.go_on()
        self._await_standby()

    def _await_standby(self) -> None:
        application = self.stage.application
        application.await_event(StandingBy, 0, after=application.events(Started)[-1].at)

    def stop(self) -> None:
        """End the run; what it was inside of may stay planned."""
        self.stage.application.stop()

    def go_on(self) -> None:
        """Send more, wait for the first new batch, and write down what was said of it."""
        application = self.stage.application
        self.stage.send(self.chance.randint(500, 1500))
        try:
            application.await_event(Committed, self._mark)
        except PersonNeededError:
            self._accept_all()
            application.await_event(Committed, self._mark)
        if application.events(Repaired, self._mark) or application.events(Ended, self._mark):
            promised = application.await_event(PromiseChecked, self._mark)
            assert promised.state != "broken", promised.because
        self._write_down()
        self._mark = application.mark

    @property
    def topic_number(self) -> int:
        """How often the topic was created again: the first part of each place of the one that there is now."""
        return len(self._gone)

    def sent(self) -> set[Place]:
        """Every record of every topic of the name."""
        ends = [*(each.ends for each in self._gone), self.stage.broker.latest_offsets(TOPIC)]
        return {
            (number, partition, offset)
            for number, parts in enumerate(ends)
            for partition, end in parts.items()
            for offset in range(end)
        }

    def shown(self) -> Counter[Place]:
        """The place of every row of the table; flights are numbered, so each tells in which topic it was."""
        rows = DeltaTable(str(self.stage.table)).to_pyarrow_table(columns=["id", "partition", "offset"]).to_pydict()
        last = [each.last_flight for each in self._gone]
        topics = (bisect.bisect_left(last, int(each.rpartition("-")[2])) for each in rows["id"])
        return Counter(zip(topics, rows["partition"], rows["offset"], strict=True))

    def count_ways(self) -> Counter[str]:
        """How often the query was started in which way."""
        return Counter(each.way for each in self.stage.application.events(Started))

    def require_as_said(self) -> None:
        """See that every record is there once, but for exactly what was said.

        What was unread of a topic that was created again nobody can count: that there may be some has to be said.
        """
        shown, sent = self.shown(), self.sent()
        assert len(sent) == self.stage.sent
        assert all(each.is_said for each in self._gone), self.told
        unread: set[Place] = set().union(*(each.unread for each in self._gone))
        lost = sent - shown.keys() - unread
        doubled = {place: times - 1 for place, times in shown.items() if times > 1}
        assert shown.keys() <= sent, _differing(set(shown), sent, self.told)
        said = self.lost.keys() - unread
        assert said - self._read_again <= lost <= said, _differing(lost, said, self.told)
        if self.is_bound:
            assert all(times <= self.doubled[place] for place, times in doubled.items()), self.told
        else:
            assert doubled == self.doubled, _differing(set(doubled), set(self.doubled), self.told)

    def _accept_all(self) -> None:
        """A person was called: only for what the policy does not accept. The person does."""
        application = self.stage.application
        needed = application.wait()
        assert isinstance(needed, PersonNeededError)
        (called,) = application.events(Called, self._mark)
        assert called.file is not None, called
        needs = set(json.loads(Path(called.file).read_bytes())["needs"])
        assert needs, called
        assert not needs & set(self.accept), called
        self.told.append(f"a person accepts {', '.join(sorted(needs))}")
        self._mark = application.start(
            Policy(accept=ACCEPTABLE, backoff_seconds=0.2), limit=self.chance.choice(_LIMITS)
        )
        self._has_standby = False

    def _write_down(self) -> None:
        """Note down what was said of each repair; the history of one is written beside what the run goes on with."""
        location = parse_location(str(self.stage.checkpoint))
        storage = open_storage(location)
        done = {each.recovery for each in self.stage.application.events(Repaired, self._mark)}
        deadline = time.monotonic() + _HISTORY_SECONDS
        while True:
            for each in list_incidents(storage, location):
                self._note(read_incident(storage, location, each))
            if done <= self._seen:
                return
            assert time.monotonic() < deadline, (done - self._seen, self.told)
            time.sleep(0.1)

    def _note(self, incident: Incident) -> None:
        for attempt in incident.attempts:
            plan = attempt.plan
            if plan is None or plan["recovery"] in self._seen:
                continue
            if attempt.did in ("repair", "restart"):
                self.guarantees.add(plan["guarantee"])
            # What was accepted of a start as it stands is a price as well, though nothing was repaired.
            if attempt.did == "repair" or (attempt.did == "restart" and plan["guarantee"] == "lossy"):
                self._seen.add(plan["recovery"])
                self.told.append(f"{plan['goal']}: {plan['guarantee']}; {attempt.because}")
                self._note_price(plan)

    def _note_price(self, plan: Any) -> None:
        if self._gone and any(_CREATED_AGAIN in line and "assumption" not in line for line in plan["rests_on"]):
            assert plan["guarantee"] == "lossy", plan
            self._gone[-1].is_said = True
        for source in plan["sources"]:
            reread, twice = self._places(source, "reread"), self._places(source, "duplicated")
            back = self.lost.keys() & (reread | twice)
            self.doubled.update(twice - back)
            self.is_bound = self.is_bound or (bool(twice) and source["bound"])
            if source["bound"]:
                self._read_again |= back
            else:
                for place in back:
                    del self.lost[place]
            self.lost.update(self._places(source, "lost"))

    def _places(self, source: Any, what: str) -> set[Place]:
        ranges = list_ranges(source, what)
        return {(self.topic_number, partition, at) for _, partition, start, end in ranges for at in range(start, end)}

    # Failures: each leaves `lastgood run` running.

    def driver_killed(self) -> None:
        """Kill -9, wherever it is."""
        time.sleep(self.chance.uniform(0, 1))
        self.stage.application.kill()

    def driver_killed_in_a_batch(self) -> None:
        """Kill -9, inside a batch."""
        self.stage.send(3000)
        self.stage.application.kill_in_a_batch(self.chance)

    def limit_changed(self) -> None:
        """Stopped, and started with another limit."""
        self.stop()
        self.start()

    def plan_truncated(self) -> None:
        """The newest plan is cut off, as by a full disk."""
        self._damage("offsets", lambda file: file.write_bytes(file.read_bytes()[: self.chance.randrange(1, 200)]))

    def plan_empty(self) -> None:
        """The newest plan is an empty file, as after a power failure."""
        self._damage("offsets", lambda file: file.write_bytes(b""))

    def commit_empty(self) -> None:
        """The newest commit is an empty file."""
        self._damage("commits", lambda file: file.write_bytes(b""))

    def commit_gone(self) -> None:
        """The newest commit is not there."""
        self._damage("commits", lambda file: file.unlink())

    def metadata_gone(self) -> None:
        """`metadata` is not there: without it the query would get another id."""
        self._while_no_driver_works((self.stage.checkpoint / "metadata").unlink)

    def checksum_left_over(self) -> None:
        """A `.crc` of the next plan is left over, which fits no file."""

        def leave() -> None:
            plans = (int(each.name) for each in (self.stage.checkpoint / "offsets").iterdir() if each.name.isdecimal())
            (self.stage.checkpoint / f"offsets/.{max(plans) + 1}.crc").write_bytes(b"crc\0\0\0\2\0abcd")

        self._while_no_driver_works(leave)

    def checkpoint_deleted(self) -> None:
        """There is no checkpoint any more, but its mirror."""
        self._while_no_driver_works(lambda: shutil.rmtree(self.stage.checkpoint))

    def checkpoint_and_mirror_deleted(self) -> None:
        """No log is left; the table alone knows."""
        self.stop()
        self.stage.lose_checkpoint(mirror_too=True)
        self.start()

    def records_expired(self) -> None:
        """Kafka deletes records that nobody has read."""
        self.stage.settle()
        self.stop()
        read = self.stage.committed()
        self.stage.send(2000)
        self.stage.await_sent()
        latest = self.stage.broker.latest_offsets(TOPIC)
        gone = {each: (read.get(each, 0) + latest[each]) // 2 for each in latest}
        self.stage.broker.delete_records(TOPIC, gone)
        self.start()

    def partition_added(self) -> None:
        """The topic has one partition more."""
        self.stage.await_sent()
        self.stage.broker.add_partitions(TOPIC, len(self.stage.broker.latest_offsets(TOPIC)) + 1)

    def topic_recreated(self) -> None:
        """Somebody deletes the topic and makes it anew; when lastgood looks, it may be longer than what was read."""
        if self.chance.random() < 0.5:
            self.stage.settle()
        is_stopped = self.chance.random() < 0.7
        if is_stopped:
            self.stop()
        self.stage.await_sent()
        ends, read = self.stage.broker.latest_offsets(TOPIC), self.stage.committed()
        self._gone.append(_GoneTopic(len(self._gone), self.stage.sent, ends, read))
        self.stage.broker.recreate_topic(TOPIC)
        self.stage.send(self.chance.choice((1, 300, sum(ends.values()) + 600)))
        if is_stopped:
            self.stage.await_sent()
            self.start()
        else:
            self._await_start_after_end()

    def topic_recreated_and_no_id_known(self) -> None:
        """The topic is deleted and made anew, longer than what was read, and nobody has kept the id of the old one."""
        self.stage.settle()
        self.stop()
        ends, read = self.stage.broker.latest_offsets(TOPIC), self.stage.committed()
        self._gone.append(_GoneTopic(len(self._gone), self.stage.sent, ends, read))
        self.stage.broker.recreate_topic(TOPIC)
        shutil.rmtree(self.stage.mirror, ignore_errors=True)  # mirror, records and ids
        self._send_more_than(ends)
        self.start()

    def _send_more_than(self, ends: Mapping[int, int]) -> None:
        """Send until every partition is longer than it was."""
        self.stage.send(sum(ends.values()) + 600)
        self.stage.await_sent()
        while any(at <= ends.get(each, 0) for each, at in self.stage.broker.latest_offsets(TOPIC).items()):
            self.stage.send(1000)
            self.stage.await_sent()

    def number_planned_anew(self) -> None:
        """Somebody drops the newest batch by hand, which the table has; the next driver plans it anew, and dies."""
        self.stage.settle()
        self.stop()
        number = max(int(each.name) for each in (self.stage.checkpoint / "offsets").iterdir() if each.name.isdecimal())
        plan = self.stage.checkpoint / f"offsets/{number}"
        entry = parse_offset_entry(plan.read_bytes())
        assert isinstance(entry, OffsetEntry)
        for log in ("offsets", "commits"):
            for name in (str(number), f".{number}.crc"):
                (self.stage.checkpoint / log / name).unlink(missing_ok=True)
        self.stage.send(self.chance.randint(1, 800))
        self.stage.await_sent()
        begin = self.stage.end_of(number - 1) if number else {}
        plan.write_bytes(self._planned_anew(entry, begin))
        self.start()

    def _planned_anew(self, entry: OffsetEntry, begin: Mapping[int, int]) -> bytes:
        """A plan of now that begins where this one does, and ends anywhere after."""
        (line,) = entry.sources
        latest = self.stage.broker.latest_offsets(TOPIC)
        ends = {each: self.chance.randint(begin.get(each, 0), end) for each, end in latest.items()}
        lines = entry.with_source_line(line.source_id, KafkaOffset({TOPIC: ends})).to_bytes().decode().split("\n")
        metadata = {**json.loads(lines[1]), "batchTimestampMs": int(time.time() * 1000)}
        lines[1] = json.dumps(metadata, separators=(",", ":"))
        return "\n".join(lines).encode()

    def _await_start_after_end(self) -> None:
        """The driver dies, or lastgood ends it where it would read on in the middle of another topic."""
        application = self.stage.application
        application.await_event(Ended, self._mark)
        self._mark = application.mark
        while application.is_running and not application.events(Started, self._mark):
            time.sleep(0.05)
        if not application.is_running:
            self._accept_all()

    def broker_down(self) -> None:
        """The broker is away, the driver dies of something else, and the broker comes back."""
        self.stage.await_sent()
        self.stage.broker.kill()
        self.stage.application.kill()
        self._bring_broker_back()

    def broker_down_in_a_batch(self) -> None:
        """The broker goes away inside a batch, and comes back; the driver may have died of something else."""
        self.stage.send(3000)
        self.stage.await_sent()
        application = self.stage.application
        application.await_that("a batch", lambda: application.progress.in_flight)
        time.sleep(self.chance.uniform(0, 0.5))
        self.stage.broker.kill()
        if self.chance.random() < 0.5:
            application.kill()
        self._bring_broker_back()

    def broker_down_at_the_start(self) -> None:
        """The broker goes away while lastgood looks what is the matter, or while the next driver comes up."""
        self.stage.await_sent()
        application, mark = self.stage.application, self.stage.application.mark
        application.kill()
        if self.chance.random() < 0.5:
            application.await_event(Started, mark)
            time.sleep(self.chance.uniform(0, 5))
        else:
            application.await_event(Ended, mark)
            time.sleep(self.chance.uniform(0, 0.7))
        self.stage.broker.kill()
        self._bring_broker_back()

    def _bring_broker_back(self) -> None:
        time.sleep(self.chance.uniform(0, 5))
        self.stage.broker.restart()

    def two_supervisors(self) -> None:
        """Somebody starts another `lastgood run` on the same checkpoint."""
        command = [str(LASTGOOD), "run", "--checkpoint", str(self.stage.checkpoint), "--", "true"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 73, done.stdout + done.stderr

    def _damage(self, log: str, damage: Callable[[Path], object]) -> None:
        def damage_newest() -> None:
            folder = self.stage.checkpoint / log
            newest = max((each for each in folder.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))
            with contextlib.suppress(FileNotFoundError):
                (folder / f".{newest.name}.crc").unlink()
            damage(newest)

        self._while_no_driver_works(damage_newest)

    def _while_no_driver_works(self, do: Callable[[], object]) -> None:
        """Do something to the checkpoint of a run that is stopped, or of a driver at rest for which a standby waits."""
        if not self._has_standby or self.chance.random() < 0.3:
            self.stop()
            do()
            self.start()
            return
        self.stage.settle()
        self._await_standby()
        do()
        self.stage.application.kill()


FAILURES: dict[str, Callable[[Course], None]] = {
    failure.__name__: failure
    for failure in (
        Course.driver_killed,
        Course.driver_killed_in_a_batch,
        Course.limit_changed,
        Course.plan_truncated,
        Course.plan_empty,
        Course.commit_empty,
        Course.commit_gone,
        Course.metadata_gone,
        Course.checksum_left_over,
        Course.checkpoint_deleted,
        Course.checkpoint_and_mirror_deleted,
        Course.records_expired,
        Course.partition_added,
        Course.topic_recreated,
        Course.topic_recreated_and_no_id_known,
        Course.number_planned_anew,
        Course.broker_down,
        Course.broker_down_in_a_batch,
        Course.broker_down_at_the_start,
        Course.two_supervisors,
    )
}


def _differing(found: set[Place], said: set[Place], told: list[str]) -> str:
    more, less = sorted(found - said), sorted(said - found)
    return f"{len(more)} not said: {more[:5]}; {len(less)} said and not so: {less[:5]}; {told}"
