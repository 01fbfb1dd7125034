"""Repairs of numbers that a sink has from an older plan: what is planned under them now would be dropped. Pure."""

from __future__ import annotations

from lastgood.checkpoint.layout import OFFSETS
from lastgood.checkpoint.source_offsets import SourceOffset
from lastgood.planning.draft import Edit
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.pricing import Reached, find_ends, price_start
from lastgood.planning.repairs.repair import Repair, Work, refuse
from lastgood.planning.repairs.sinks import find_begin_of_orphans, find_newest_served, list_orphans_after
from lastgood.planning.repairs.sinks_back import take_older_plan_back
from lastgood.planning.standing import Standing
from lastgood.query.sink_batches import is_reading_nothing
from lastgood.query.sinks import SinkView

_TAKEN_MAX = 1000
"""So many numbers are used up at once; a mark that is higher is not of batches that anybody dropped."""


def use_number_up(work: Work) -> Repair | None:
    """A sink holds the number of the orphan from an older plan: the number is used up, and its range read under others.

    The orphan becomes a batch that reads nothing. Spark runs it, the sink drops it, and the next batch begins where the
    orphan began: nothing is lost whatever the older plan read, and what it read comes twice. Where the query keeps
    state, the state that the older plan made would count twice as well: there the sink gives the batch back.

    Raises:
        RepairRefusedError: neither can be done.
    """
    standing = work.standing
    taken = [each for each in standing.planned_anew if each.sink.would_skip(standing.planned) is not False]
    if not taken or is_reading_nothing(standing.checkpoint, standing.planned):
        return None
    batch_id, why = standing.planned, _explain_taken(taken[0], standing.planned)
    if standing.observed.is_stateful:
        back = take_older_plan_back(standing, why)
        if back is None:
            raise refuse(
                standing,
                f"a sink has batch {batch_id} from an older plan, and the query keeps state",
                subject=taken[0].sink.location,
                found=taken[0].held[batch_id].because,
                expected="a sink that can be taken back, and a Kafka that serves all that came after (--kafka)",
                effect="what the batch reads would be dropped without a word, or counted twice in the state",
                next=standing.observed.command("diagnose"),
            )
        return back
    # Other plans that are not committed go the same way: Spark takes them for done, whatever they were to read.
    orphans = list_orphans_after(standing, standing.committed, batch_id)
    begin = find_begin_of_orphans(standing, standing.committed, orphans)
    numbers = (*orphans, *_list_taken_above(taken, batch_id))
    empty = _make_empty_plan(standing, begin)
    return Repair(
        tuple(Edit(f"{OFFSETS}/{number}", empty, f"{why}: the number is used up") for number in numbers),
        word=Guarantee.AT_LEAST_ONCE,
        rests_on=(*_list_grounds(standing, taken), f"{_name_before(numbers[0])}: everything from there on is read"),
        prices=price_older_plan(standing, begin),
    )


def _list_taken_above(taken: list[SinkView], batch_id: int) -> range:
    """Numbers above the orphan that a sink has as well: what the next batches bring would be dropped like it."""
    newest = max(each.marked for each in taken)
    return range(batch_id + 1, newest + 1 if newest - batch_id <= _TAKEN_MAX else 0)


def price_older_plan(standing: Standing, begin: dict[str, SourceOffset]) -> tuple[SourcePrice, ...]:
    """What an older plan of the orphan may have written, which is read again from where the orphan began."""
    reached = find_newest_served(standing, {**begin, **find_ends(standing.plan(standing.planned))})
    return price_start(begin, Reached(begin, reached, reached), standing.checkpoint, standing.kafka)


def _make_empty_plan(standing: Standing, begin: dict[str, SourceOffset]) -> bytes:
    """A plan of the orphan's number that reads nothing: the one before it, or its own that ends where it begins."""
    before = standing.plan(standing.committed)
    if before is not None:
        return before.to_bytes()
    plan = standing.plan(standing.planned)
    if plan is None:
        raise refuse(standing, f"no {OFFSETS}/{standing.planned} that can be read")
    for source_id, offset in begin.items():
        plan = plan.with_source_line(source_id, offset)
    return plan.to_bytes()


def _list_grounds(standing: Standing, taken: list[SinkView]) -> list[str]:
    lines = [f"{each.sink.location}: {each.held[standing.planned].because}" for each in taken]
    if standing.kafka is None:
        lines.append("how far the older plan went nobody tells: Kafka was not asked (--kafka)")
    return lines


def _explain_taken(reading: SinkView, batch_id: int) -> str:
    return f"{reading.sink.location} has a batch {batch_id} of an older plan, and would drop this one"


def _name_before(batch_id: int) -> str:
    if not batch_id:
        return "where its sources begin"
    return f"{OFFSETS}/{batch_id - 1}"
