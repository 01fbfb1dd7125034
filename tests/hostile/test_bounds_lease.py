"""A lease is a number in a name: it costs no more than it is long, and no number keeps a repair looking for ever."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lastgood.errors import Retry
from lastgood.journal.lease import NUMBER_MAX, Holder, LeaseHeldError, LeaseInvalidError, take_lease
from lastgood.storage.reading import Location, parse_location
from lastgood.storage.writing import LocalWriter, WritableStorage
from lastgood.testing.storage import FaultyWriter, MemoryWriter

WORK = parse_location("s3a://lake/chk.lastgood")
HOLDER = Holder("host", None, 77, 1234, "ann")
RELEASED: dict[str, Any] = {
    "recovery": "r",
    "holder": {"host": "h", "machine": None, "pid": 1, "started": None, "user": "u"},
    "taken_at": "",
    "beat_at": "",
    "released": True,
}
CHANGES_MAX = 20


class Patience:
    """A storage that counts what is asked of it, so that a loop without an end is one that ends in a failure."""

    def __init__(self, name: str, content: bytes, held: WritableStorage | None = None, work: Location = WORK) -> None:
        self.held = MemoryWriter() if held is None else held
        self.work = work
        self.held.write(work / f"leases/{name}", content)
        self.storage = FaultyWriter(self.held, between=self._count)

    def _count(self, number: int) -> None:
        assert number <= CHANGES_MAX, "it goes on for ever"


def take(patience: Patience) -> int:
    clock = iter(range(0, 10**6, 30))
    lease = take_lease(
        patience.storage,
        patience.work,
        "r1",
        holder=HOLDER,
        clock=lambda: next(clock),
        wait=lambda _: None,
        now_ms=lambda: 0,
    )
    lease.release()
    return lease.number


@pytest.mark.parametrize("name", ["999999999999999999", "9" * 19, "9" * 200, str(NUMBER_MAX), "1" + "0" * 4300])
@pytest.mark.parametrize("content", [json.dumps(RELEASED).encode(), b"", b"[" * 60_000])
def test_a_lease_beyond_all_bounds_is_told_by_name(name: str, content: bytes) -> None:
    with pytest.raises(LeaseInvalidError) as told:
        take(Patience(f"{name}.json", content))
    assert f"{name}.json" in told.value.subject
    assert told.value.next is not None
    assert f"leases/{name}.json" in told.value.next


@given(st.text("0123456789.jsonab-+ \u0663\uff13\n", max_size=24))
def test_whatever_a_lease_is_called_a_repair_gets_one_or_is_told(name: str) -> None:
    patience = Patience(f"x{name}" if name in ("", ".", "..") else name, json.dumps(RELEASED).encode())
    try:
        number = take(patience)
    except LeaseInvalidError:
        return
    assert 0 < number <= NUMBER_MAX
    assert _is_there(patience.held, WORK / f"leases/{number}.json")


def test_a_lease_that_was_counted_up_to_is_followed() -> None:
    assert take(Patience("41.json", json.dumps(RELEASED).encode())) == 42
    assert take(Patience(f"{NUMBER_MAX - 1}.json", json.dumps(RELEASED).encode())) == NUMBER_MAX


KINDS: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe, a socket or a device": os.mkfifo,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", [1, 42])
def test_what_bears_the_name_of_a_lease_and_is_no_file_is_told_by_name(tmp_path: Path, number: int, kind: str) -> None:
    work = parse_location(str(tmp_path / "chk.lastgood"))
    patience = Patience(
        f"{number - 1}.json" if number > 1 else "none", json.dumps(RELEASED).encode(), LocalWriter(), work
    )
    KINDS[kind](tmp_path / f"chk.lastgood/leases/{number}.json")
    with pytest.raises(LeaseInvalidError) as told:
        take(patience)
    assert told.value.subject == str(work / f"leases/{number}.json")
    assert told.value.found == kind
    assert told.value.subject in str(told.value.next)


def test_whoever_is_overtaken_again_and_again_is_told_so() -> None:
    """Each time somebody else has just taken the number, and let go of it."""

    class Overtaken(MemoryWriter):
        def create(self, file: Location, content: bytes) -> bool:
            super().create(file, json.dumps(RELEASED).encode())
            return super().create(file, content)

    with pytest.raises(LeaseHeldError) as told:
        take(Patience("1.json", json.dumps(RELEASED).encode(), Overtaken()))
    assert told.value.retry is Retry.LATER


def _is_there(storage: WritableStorage, file: Location) -> bool:
    return storage.stat(file) is not None
