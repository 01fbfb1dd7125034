from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from lastgood.errors import StorageError
from lastgood.journal import lease as lease_module
from lastgood.journal.lease import (
    Holder,
    Lease,
    LeaseHeldError,
    LeaseLostError,
    LeasePace,
    parse_lease,
    raise_if_overtaken,
    take_lease,
)
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import WritableStorage
from lastgood.testing.storage import FaultyWriter, MemoryWriter

WORK = parse_location("s3a://lake/chk.lastgood")
LEASES = WORK / "leases"
NOW_MS = 1_790_000_000_000
QUIET = LeasePace(lease_seconds=60, beat_seconds=3600, look_seconds=1)
"""No beat but those of the test."""
ELSEWHERE = Holder("other-host", "another machine", 77, 1234, "ann")


class Time:
    """A clock that goes on only when somebody waits; `happen` maps a look to what happens then."""

    def __init__(self, happen: dict[int, Callable[[], object]] | None = None, *, jump: float = 0.0) -> None:
        self.seconds = 0.0
        self.looks = 0
        self._happen = happen or {}
        self._jump = jump

    def clock(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        assert self.looks < 1000, "watched for ever"
        self.seconds += seconds + self._jump
        self.looks += 1
        self._happen.get(self.looks, lambda: None)()


def take(storage: WritableStorage, recovery: str = "r1", time: Time | None = None, **given: Any) -> Lease:
    time = time or Time()
    settings: dict[str, Any] = {"holder": ELSEWHERE, "now_ms": lambda: NOW_MS, "pace": QUIET, **given}
    return take_lease(storage, WORK, recovery, clock=time.clock, wait=time.wait, **settings)


def content(storage: WritableStorage, number: int) -> dict[str, Any]:
    told = json.loads(storage.read(LEASES / f"{number}.json", limit=10**6) or b"null")
    assert isinstance(told, dict)
    return told


def names(storage: WritableStorage) -> list[str]:
    return sorted(storage.names(LEASES) or ())


def test_a_lease_says_who_holds_it_and_is_released_in_the_end() -> None:
    storage = MemoryWriter()
    with take(storage, "20261121-031200-7f3a") as lease:
        lease.check()
        assert lease.number == 1
        assert content(storage, 1) == {
            "recovery": "20261121-031200-7f3a",
            "holder": {"host": "other-host", "machine": "another machine", "pid": 77, "started": 1234, "user": "ann"},
            "taken_at": "2026-09-21T14:13:20.000Z",
            "beat_at": "2026-09-21T14:13:20.000Z",
            "beats": 0,
            "released": False,
        }
    assert content(storage, 1)["released"] is True
    lease.release()
    assert content(storage, 1)["beats"] == 1


def test_the_numbers_only_grow_and_the_newest_two_stay() -> None:
    storage = MemoryWriter()
    for number in range(1, 6):
        with take(storage) as lease:
            assert lease.number == number
            assert names(storage) == [f"{each}.json" for each in (number - 1, number) if each]


def test_it_is_released_whatever_is_raised() -> None:
    class Killed(BaseException):
        """Not an error."""

    storage = MemoryWriter()
    for error in (ValueError("x"), Killed()):
        with pytest.raises(type(error)), take(storage):
            raise error
    assert [content(storage, number)["released"] for number in (1, 2)] == [True, True]


def test_what_is_no_lease_is_left_alone() -> None:
    storage = MemoryWriter()
    others = ["0.json", "01.json", "7.json.tmp", ".8.json.x.tmp", "readme"]
    for name in others:
        storage.write(LEASES / name, b"")
    with take(storage) as lease:
        assert lease.number == 1
    assert names(storage) == sorted([*others, "1.json"])


# Held.


def test_the_first_sign_of_life_of_another_holder_is_enough() -> None:
    storage = MemoryWriter()
    with take(storage, "first") as first:
        time = Time({5: first.beat})
        with pytest.raises(LeaseHeldError) as held:
            take(storage, "second", time)
        assert time.looks == 5
        first.check()
    told = held.value.to_json()
    assert told["subject"] == "s3a://lake/chk.lastgood/leases/1.json"
    assert told["found"].startswith("first: process 77 of ann on other-host, since 2026-09-21T14:13:20.000Z")
    assert "ps -fp 77" in told["next"]
    assert "on other-host" in told["next"]


def test_who_releases_while_we_watch_lets_us_in_at_once() -> None:
    storage = MemoryWriter()
    first, time = take(storage, "first"), Time({})
    time._happen[7] = first.release
    with take(storage, "second", time) as second:
        assert (second.number, time.looks) == (2, 7)


def test_another_one_who_is_faster_while_we_watch_holds_it() -> None:
    storage = MemoryWriter()
    taken: list[Lease] = []
    dead = take(storage, "dead")
    time = Time({7: lambda: taken.append(take(storage, "faster"))})
    with pytest.raises(LeaseHeldError) as held:
        take(storage, "slower", time)
    assert "faster: process" in (held.value.found or "")
    assert time.looks == 7
    taken[0].release()
    dead.release()


def test_another_one_who_is_faster_between_look_and_create_holds_it() -> None:
    storage = MemoryWriter()
    fast: list[Lease] = []
    slow = FaultyWriter(storage, between=lambda number: fast.append(take(storage, "fast")) if number == 1 else None)
    with pytest.raises(LeaseHeldError) as held:
        take(slow, "slow")
    assert "fast: process" in (held.value.found or "")
    fast[0].release()


def test_of_many_threads_at_once_one_wins_and_all_others_are_told_of_it() -> None:
    storage, at_once, done = MemoryWriter(), threading.Barrier(8), threading.Event()
    pace = LeasePace(lease_seconds=3600, beat_seconds=0.01, look_seconds=0.01)
    told: list[str] = []

    def run(number: int) -> None:
        at_once.wait()
        try:
            with take_lease(
                storage,
                WORK,
                f"r{number}",
                holder=ELSEWHERE,
                clock=lambda: 0.0,
                wait=lambda seconds: done.wait(seconds) and None,
                now_ms=lambda: NOW_MS,
                pace=pace,
            ):
                told.append("won")
                done.wait()
        except LeaseHeldError as held:
            told.append((held.found or "").partition(":")[0])
        if len(told) == 8:
            done.set()

    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(run, range(8)):
            pass
    winner = told.index("won")
    assert winner == 0
    assert len(set(told)) == 2, told


# Taken over.


def test_a_lease_that_does_not_change_for_its_time_is_taken_over() -> None:
    storage, time = MemoryWriter(), Time()
    late = take(storage, "late")
    with take(storage, "next", time) as lease:
        assert (lease.number, time.seconds) == (2, 60.0)
        lease.check()
        with pytest.raises(LeaseLostError) as lost:
            late.check()
        assert "lease 2, next: process 77" in (lost.value.found or "")
        late.beat()  # a thread that wakes up late
        lease.check()
        with pytest.raises(LeaseLostError):
            late.check()
    late.release()
    with take(storage, "after", Time()) as lease:
        assert (lease.number, names(storage)) == (3, ["2.json", "3.json"])


def test_who_waits_for_a_sign_of_life_says_so_once() -> None:
    told: list[str] = []
    storage = MemoryWriter()
    storage.write(LEASES / "1.json", b"half of a lea")
    take(storage, "next", tell=told.append).release()
    assert told == ["waiting up to 60 s for a sign of life: a process that has not written its name"]


def test_a_machine_that_sleeps_while_it_watches_takes_nothing_from_the_living() -> None:
    """All of the sleep counts as one look: the holder slept too, or had no time yet to show a sign of life."""
    storage = MemoryWriter()
    with take(storage, "first") as first:
        time = Time({4: first.beat}, jump=10_000)
        with pytest.raises(LeaseHeldError):
            take(storage, "second", time)
        assert time.looks == 4


def test_a_clock_that_goes_back_while_it_watches_only_makes_it_watch_longer() -> None:
    storage, back = MemoryWriter(), Time()
    back._happen = {3: lambda: setattr(back, "seconds", -1000.0)}
    late = take(storage)
    with take(storage, time=back) as lease:
        assert (lease.number, back.looks) == (2, 61)
    late.release()


def written(**holder: Any) -> bytes:
    return json.dumps(
        {"recovery": "r", "holder": {**asdict(ELSEWHERE), **holder}, "taken_at": "", "beat_at": "", "released": False}
    ).encode()


def test_a_lease_without_count_of_its_beats_is_read() -> None:
    assert parse_lease(written()) is not None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"[]",
        b'{"recovery": "x"}',
        b'{"holder": {"pid": 1}}',
        b"\xff",
        written(pid=0),
        written(pid=2**80),
        written(pid="77"),
        written(started="1"),
        written(of_a_newer_lastgood=1),
    ],
)
def test_a_lease_that_cannot_be_read_is_watched_like_any_other(raw: bytes) -> None:
    storage = MemoryWriter()
    storage.write(LEASES / "4.json", raw)
    with pytest.raises(LeaseHeldError) as held:
        take(storage, time=Time({2: lambda: storage.write(LEASES / "4.json", raw + b" ")}))
    assert held.value.found == "a process that has not written its name"
    time = Time()
    with take(storage, time=time) as lease:
        assert (lease.number, time.looks) == (5, 60)


def test_an_old_number_that_was_removed_meanwhile_is_nobodys() -> None:
    """We look, sleep, and create a number that others have had, released and removed: the newest counts."""
    storage = MemoryWriter()

    def others(change: int) -> None:
        if change == 1:
            for _ in range(3):
                take(storage, "others").release()
            storage.remove(LEASES / "1.json")

    with take(FaultyWriter(storage, between=others), "sleeper") as lease:
        assert (lease.number, names(storage)) == (4, ["3.json", "4.json"])


def test_a_lease_whose_file_is_gone_is_lost() -> None:
    storage = MemoryWriter()
    with take(storage) as lease:
        storage.remove(LEASES / "1.json")
        with pytest.raises(LeaseLostError) as lost:
            lease.check()
        assert lost.value.found == "no lease at all"


class Lost:
    def check(self) -> None:
        raise LeaseLostError("somebody else has taken over")


def test_who_was_overtaken_is_told_that_whatever_else_has_happened() -> None:
    with pytest.raises(LeaseLostError), raise_if_overtaken(Lost()):  # type: ignore[arg-type]
        raise StorageError("no such file")
    with pytest.raises(LeaseLostError), raise_if_overtaken(Lost()):  # type: ignore[arg-type]
        pass


def test_who_was_not_overtaken_is_told_what_has_happened() -> None:
    storage = MemoryWriter()
    with take(storage) as lease:
        with raise_if_overtaken(lease):
            pass
        with pytest.raises(StorageError, match="no such file"), raise_if_overtaken(lease):
            raise StorageError("no such file")


# Processes.


def ended_process() -> tuple[Holder, subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    told = lease_module._read_process(child.pid)
    assert told is not None
    return replace(Holder.make_own(), pid=child.pid, started=told.started), child


def test_this_process_is_alive() -> None:
    ours = Holder.make_own()
    assert (ours.pid, ours.is_surely_dead()) == (os.getpid(), False)
    assert ours.host
    assert ours.user


def test_a_process_is_dead_once_it_has_ended_even_when_nobody_asked_how() -> None:
    holder, child = ended_process()
    assert not holder.is_surely_dead()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert holder.is_surely_dead()
    child.communicate()
    assert holder.is_surely_dead()


def test_a_process_id_that_another_process_has_now_is_not_the_holder() -> None:
    ours = Holder.make_own()
    assert ours.started is not None
    assert replace(ours, started=ours.started - 1).is_surely_dead()
    assert not replace(ours, started=None).is_surely_dead()


def test_of_another_machine_nobody_knows_who_is_dead() -> None:
    holder, child = ended_process()
    child.kill()
    child.communicate()
    assert not replace(holder, machine="another start, or another container of the same name").is_surely_dead()
    assert not replace(holder, machine=None).is_surely_dead()


def test_the_lease_of_a_dead_process_is_taken_over_at_once() -> None:
    storage, time = MemoryWriter(), Time()
    holder, child = ended_process()
    late = take(storage, holder=holder)
    child.kill()
    child.communicate()
    with take(storage, time=time) as lease:
        assert (lease.number, time.looks) == (2, 0)
    late.release()


def test_where_the_system_does_not_tell_nobody_is_surely_dead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    ours = Holder.make_own()
    assert ours.machine is None
    assert not replace(ours, started=1).is_surely_dead()


# Signs of life, and storages that fail.


def test_its_holder_gives_signs_of_life_until_it_ends_though_some_are_not_written() -> None:
    storage = MemoryWriter()
    beaten = threading.Semaphore(0)

    def fail_for_a_while(change: int) -> None:
        beaten.release()
        if change in (3, 4, 6):
            raise StorageError("the storage does not answer")

    with take(FaultyWriter(storage, between=fail_for_a_while), pace=replace(QUIET, beat_seconds=0.001)):
        for _ in range(10):
            assert beaten.acquire(timeout=60)
        storage_says = content(storage, 1)
    assert storage_says["beats"] > 0
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("lease-")]


def test_a_release_that_is_not_written_is_told() -> None:
    lease = take(FaultyWriter(MemoryWriter(), before=2))
    with pytest.raises(StorageError), lease:
        lease.check()


def test_a_release_that_is_not_written_does_not_hide_what_was_raised() -> None:
    with pytest.raises(ValueError, match="first") as raised, take(FaultyWriter(MemoryWriter(), before=2)):
        raise ValueError("first")
    assert raised.value.__notes__ == ["the lease is not released: the storage does not answer"]


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("number", range(1, 5))
def test_a_process_that_is_killed_anywhere_leaves_a_lease_that_can_be_taken(number: int, moment: str) -> None:
    class Killed(BaseException):
        """A process that is gone."""

    storage = MemoryWriter()
    for _ in range(2):
        take(storage).release()
    faulty = FaultyWriter(storage, error=Killed(), **{moment: number})
    changed = 0
    try:
        with take(faulty) as lease:  # create, remove of lease 1, a beat, the release
            changed = lease.number
            lease.beat()
    except Killed:
        assert len(faulty.changes) == number
    assert changed in (0, 3)
    with take(storage) as following:
        assert following.number == max(int(name.removesuffix(".json")) for name in names(storage))
        following.check()
    assert len(names(storage)) <= 3


def test_where_the_folder_cannot_be_looked_at_after_taking_it_is_not_kept() -> None:
    class Forgetful(MemoryWriter):
        def remove(self, file: Location) -> None:
            raise StorageError("the storage does not answer", subject=str(file))

    storage = Forgetful()
    for _ in range(2):
        take(storage).release()
    with pytest.raises(StorageError):
        take(storage)
    assert content(storage, 3)["released"] is True


def test_on_a_disk_it_is_the_same(tmp_path: Path) -> None:
    from lastgood.storage.writing import LocalWriter

    work, time = parse_location(str(tmp_path / "chk.lastgood")), Time()
    for number in (1, 2, 3):
        with take_lease(
            LocalWriter(),
            work,
            "r",
            holder=Holder.make_own(),
            clock=time.clock,
            wait=time.wait,
            now_ms=lambda: NOW_MS,
        ) as lease:
            assert lease.number == number
            lease.check()
            record = parse_lease((tmp_path / f"chk.lastgood/leases/{number}.json").read_bytes())
            assert record is not None
            assert record.holder.pid == os.getpid()
    assert sorted(path.name for path in (tmp_path / "chk.lastgood/leases").iterdir()) == ["2.json", "3.json"]
