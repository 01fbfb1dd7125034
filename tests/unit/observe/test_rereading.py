"""From where sources are read again to fill an emptied state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ledgers import NOON_MS, progress

from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.errors import UsageError
from lastgood.ledger.opening import open_ledger
from lastgood.ledger.url import parse_place
from lastgood.observe.open_query import MirrorUse, OpenQuery, gather
from lastgood.observe.rereading import WindowChoice, choose_rereading
from lastgood.settings.target import resolve_target
from lastgood.testing.checkpoints import STARTED_MS, CheckpointBuilder

BATCHES = 6
LENGTH_MS = 600_000
WATERMARK_MS = NOON_MS
OLD_MS, YOUNG_MS = NOON_MS - LENGTH_MS - 1, NOON_MS - LENGTH_MS
"""The one is of no window that ends after the watermark."""


@pytest.fixture
def query(tmp_path: Path) -> OpenQuery:
    """The watermark of its last batch is noon."""
    CheckpointBuilder(tmp_path / "chk").run(BATCHES)
    file = tmp_path / f"chk/offsets/{BATCHES - 1}"
    plan = parse_offset_entry(file.read_bytes())
    assert isinstance(plan, OffsetEntry)
    file.write_bytes(plan.with_watermark(WATERMARK_MS).to_bytes())
    return gather(resolve_target(str(tmp_path / "chk")), batches=BATCHES, mirror=MirrorUse.NEVER)


def recorded(tmp_path: Path, *latest_ms: int | None, rows: int = 10, skipped: int | None = None) -> dict[str, str]:
    """A ledger that a recorder has told when the youngest event of each batch was."""
    url = f"sqlite:///{tmp_path}/ledger.sqlite"
    with open_ledger(parse_place(url)) as ledger:
        ledger.record(
            progress(
                number,
                checkpoint=str(tmp_path / "chk"),
                recorded_at_ms=STARTED_MS + 1_000_000,
                event_time_max_ms=latest,
                num_input_rows=rows if latest is not None else 0,
            )
            for number, latest in enumerate(latest_ms)
            if number != skipped
        )
    return {"LASTGOOD_LEDGER": url}


def never(event_time: str, since_ms: int) -> dict[str, str]:
    raise AssertionError(f"{event_time} was asked for {since_ms}")


def test_events_themselves_are_asked_where_no_ledger_tells_and_somebody_says_how(query: OpenQuery) -> None:
    starts, asked = {"0": '{"orders":{"0":3,"1":4}}'}, []

    def scan(event_time: str, since_ms: int) -> dict[str, str]:
        asked.append((event_time, since_ms))
        return starts

    choice = WindowChoice(length_ms=LENGTH_MS, event_time="timestamp(value)")
    goal = choose_rereading(choice, query, {}, scan=scan)
    assert (goal.starts, asked) == (starts, [("timestamp(value)", WATERMARK_MS - LENGTH_MS)])
    assert goal.rests_on[1].startswith("your word that the time of an event is timestamp(value)")


def test_ledger_goes_before_a_scan(tmp_path: Path, query: OpenQuery) -> None:
    choice = WindowChoice(length_ms=LENGTH_MS, event_time="timestamp(value)")
    goal = choose_rereading(choice, query, recorded(tmp_path, OLD_MS, YOUNG_MS), scan=never)
    assert goal.chosen.startswith("batch 0 ended")


def test_nothing_said_is_all_of_it(query: OpenQuery) -> None:
    goal = choose_rereading(WindowChoice(appends=True), query, {}, scan=never)
    assert (goal.starts, goal.chosen, goal.appends_windows) == ({}, "the query began", True)


@pytest.mark.parametrize(
    ("latest_ms", "last"),
    [
        ([OLD_MS, OLD_MS, OLD_MS, YOUNG_MS, OLD_MS], 2),
        ([OLD_MS, None, OLD_MS, YOUNG_MS], 2),
        ([OLD_MS, YOUNG_MS, OLD_MS, OLD_MS], 0),
    ],
)
def test_ledger_tells_after_which_batch_events_can_count(
    tmp_path: Path, query: OpenQuery, latest_ms: list[int | None], last: int
) -> None:
    """Also where a later batch has read none that can: what comes after the first that has is read."""
    goal = choose_rereading(WindowChoice(length_ms=LENGTH_MS), query, recorded(tmp_path, *latest_ms), scan=never)
    end = 5 * (last + 1)
    assert {name: json.loads(text) for name, text in goal.starts.items()} == {"0": {"orders": {"0": end, "1": end}}}
    assert goal.chosen.startswith(f"batch {last} ended")
    assert goal.rests_on == ("your word that no window is longer than 10 min",)


@pytest.mark.parametrize(
    "told",
    [
        {"latest_ms": [YOUNG_MS, OLD_MS]},
        {"latest_ms": [OLD_MS, OLD_MS], "skipped": 0},
        {"latest_ms": []},
    ],
    ids=["the first is young", "the first is not known", "nothing"],
)
def test_where_no_ledger_tells_a_person_has_to(tmp_path: Path, query: OpenQuery, told: dict[str, object]) -> None:
    latest_ms = told.pop("latest_ms")
    environment = recorded(tmp_path, *latest_ms, **told)  # type: ignore[misc, arg-type]
    with pytest.raises(UsageError) as caught:
        choose_rereading(WindowChoice(length_ms=LENGTH_MS), query, environment, scan=never)
    assert "--max-clock-skew" in (caught.value.expected or "")


def test_batch_that_the_ledger_lacks_ends_what_it_tells(tmp_path: Path, query: OpenQuery) -> None:
    environment = recorded(tmp_path, OLD_MS, OLD_MS, OLD_MS, skipped=1)
    goal = choose_rereading(WindowChoice(length_ms=LENGTH_MS), query, environment, scan=never)
    assert goal.chosen.startswith("batch 0 ended")


@pytest.mark.parametrize("choice", [WindowChoice(clock_skew_ms=0), WindowChoice(event_time="timestamp(value)")])
def test_times_without_a_window_tell_nothing(choice: WindowChoice, query: OpenQuery) -> None:
    with pytest.raises(UsageError) as caught:
        choose_rereading(choice, query, {}, scan=never)
    assert caught.value.expected == "--window"


def test_watermark_that_was_ahead_of_its_batch_belies_the_skew(tmp_path: Path) -> None:
    builder = CheckpointBuilder(tmp_path / "chk", started_ms=WATERMARK_MS - 60_000)
    builder.run(1)
    file = tmp_path / "chk/offsets/0"
    plan = parse_offset_entry(file.read_bytes())
    assert isinstance(plan, OffsetEntry)
    file.write_bytes(plan.with_watermark(WATERMARK_MS).to_bytes())
    query = gather(resolve_target(str(tmp_path / "chk")), batches=1, mirror=MirrorUse.NEVER)
    with pytest.raises(UsageError) as caught:
        choose_rereading(WindowChoice(length_ms=LENGTH_MS, clock_skew_ms=59_999), query, {}, scan=never)
    assert caught.value.found == "a watermark of 1 min after the time of batch 0"


def test_words_ask_for_the_same(query: OpenQuery) -> None:
    choice = WindowChoice(appends=True, length_ms=600_000, clock_skew_ms=0, event_time="timestamp(value)")
    assert choice.words() == (
        "--appends-windows",
        "--window",
        "600000ms",
        "--max-clock-skew",
        "0ms",
        "--event-time",
        "timestamp(value)",
    )
    assert (WindowChoice().words(), WindowChoice().is_said) == ((), False)
