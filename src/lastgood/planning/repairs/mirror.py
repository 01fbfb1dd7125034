"""A repair of logs that have lost their newest batches, where the sinks do not tell how far they are. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.layout import COMMITS, OFFSETS, SOURCES
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import VoidOffset
from lastgood.frozen import dataclass
from lastgood.planning.draft import Edit, RepairRefusedError
from lastgood.planning.repairs.lost import list_mirrored, list_source_files
from lastgood.planning.repairs.repair import Repair, Work, name_copy
from lastgood.planning.standing import Standing
from lastgood.query.lost import MIRROR
from lastgood.query.sinks import NONE, SinkView
from lastgood.sinks.evidence import is_query_id


def lift_by_mirror(work: Work) -> Repair | None:
    """The logs end before what the mirror has seen of this very query, and not every sink tells: they are lifted.

    Only where the mirror goes on from the very bytes that the logs hold, without a gap, where no sink that tells
    something contradicts, and where Spark then runs. Else it is Spark's own restart, which reads all of it again.
    """
    standing = work.standing
    if standing.sinks_known or standing.planned_anew or standing.planned == NONE or not work.mirror:
        return None
    further = _Further.of(work)
    if further is None or any(_is_contradicting(each, further.committed) for each in standing.sinks):
        return None
    why = f"{MIRROR} has seen batch {further.planned}, and the logs have lost it"
    plans = (Edit(f"{OFFSETS}/{n}", work.mirror[f"{OFFSETS}/{n}"], why) for n in further.plans)
    commits = (Edit(f"{COMMITS}/{n}", work.mirror[f"{COMMITS}/{n}"], why) for n in further.commits)
    edits = (*_copy_source_files(work, why), *plans, *commits)
    if further.plans:
        newest = f"{OFFSETS}/{further.planned}"
    else:
        newest = f"{COMMITS}/{further.committed}"
    doubt = "what was planned after it nobody knows, since not every sink tells"
    deliberate = "the assumption that the sinks have these batches, and nobody took them out to have them read again"
    repair = Repair(edits, rests_on=(f"{name_copy(newest)}, its newest; {doubt}", deliberate), keeps_state=True)
    return repair if _can_run(work, repair, further) else None


@dataclass(frozen=True, slots=True)
class _Further:
    """What the mirror has of the batches after those in the logs."""

    planned: int
    committed: int
    plans: tuple[int, ...]
    """Those that the logs lack, oldest first."""
    commits: tuple[int, ...]

    @classmethod
    def of(cls, work: Work) -> _Further | None:
        """None if there is nothing, or if it is not known to go on from what the logs hold."""
        standing = work.standing
        plans, commits = (
            _list_offset_entries(work.mirror, standing.planned),
            _list_commits(work.mirror, standing.committed),
        )
        planned = standing.planned
        while planned + 1 in plans and (planned in commits or planned <= standing.committed):
            planned += 1
        committed = max((n for n in commits if n <= planned), default=standing.committed)
        ids = standing.checkpoint.offsets.ids
        held = ids.within(range(standing.committed + 1, min(standing.planned, committed) + 1))
        lacking = [*held, *range(max(standing.committed, standing.planned) + 1, committed + 1)]
        found = cls(planned, committed, tuple(range(standing.planned + 1, planned + 1)), tuple(lacking))
        is_more = bool(found.plans or found.commits) and commits.keys() >= set(lacking)
        if is_more and _is_same(work) and _is_of_same_sources(standing, plans, found.plans):
            return found
        return None


def _list_offset_entries(mirror: Mapping[str, bytes], after: int) -> dict[int, OffsetEntry]:
    newer = {n: parse_offset_entry(raw) for n, raw in list_mirrored(mirror, OFFSETS).items() if n > after}
    return {n: entry for n, entry in newer.items() if isinstance(entry, OffsetEntry)}


def _list_commits(mirror: Mapping[str, bytes], after: int) -> dict[int, CommitEntry]:
    newer = {n: parse_commit_entry(raw) for n, raw in list_mirrored(mirror, COMMITS).items() if n > after}
    return {n: entry for n, entry in newer.items() if isinstance(entry, CommitEntry)}


def _is_same(work: Work) -> bool:
    """Whether the mirror holds the newest plan of the logs, and all that both hold is the same, byte for byte."""
    checkpoint = work.standing.checkpoint
    plans, commits = checkpoint.offsets.entries, checkpoint.commits.entries
    held = {f"{OFFSETS}/{n}": entry.raw for n, entry in plans.items() if isinstance(entry, OffsetEntry)}
    held |= {f"{COMMITS}/{n}": entry.raw for n, entry in commits.items() if isinstance(entry, CommitEntry)}
    newest = f"{OFFSETS}/{work.standing.planned}"
    is_common = newest in held and newest in work.mirror
    return is_common and all(raw == work.mirror.get(path, raw) for path, raw in held.items())


def _is_of_same_sources(standing: Standing, plans: Mapping[int, OffsetEntry], numbers: tuple[int, ...]) -> bool:
    """Whether the plans are of the same sources as the newest one in the logs."""
    here = standing.plan(standing.planned)
    if here is None:
        before = {}
    else:
        before = _list_kinds(here)
    for number in numbers:
        now = _list_kinds(plans[number])
        if now.keys() != before.keys() or any(before[each] not in (VoidOffset.kind, now[each]) for each in now):
            return False
        before = now
    return True


def _list_kinds(plan: OffsetEntry) -> dict[str, str]:
    return {line.source_id: line.offset.kind for line in plan.sources}


def _is_contradicting(reading: SinkView, committed: int) -> bool:
    """Whether a sink tells that it lacks what the mirror knows to be committed: then both went back together."""
    sink = reading.sink
    if reading.shows_none:
        return sink.traits.keeps_log is True  # of a table a function may write that nobody recognises there
    if sink.known:
        return reading.shown < committed
    named = [last for name, last in sink.others.items() if not is_query_id(name)]
    return bool(named) and max(named) < committed


def _copy_source_files(work: Work, why: str) -> Iterator[Edit]:
    """What file sources have noted down of these batches."""
    held = {log.folder: log.listing.ids for log in work.standing.checkpoint.sources}
    for folder in sorted({path.rpartition("/")[0] for path in work.mirror if path.startswith(f"{SOURCES}/")}):
        newest = max(held.get(folder, ()), default=NONE)
        for path in list_source_files(work.mirror, folder):
            if int(path.removeprefix(f"{folder}/").partition(".")[0]) > newest:
                yield Edit(path, work.mirror[path], why)


def _can_run(work: Work, repair: Repair, further: _Further) -> bool:
    """Whether Spark would go on right behind them, with its state and its sources as they are."""
    try:
        then = work.with_repair(repair).standing
    except RepairRefusedError:
        return False
    following = further.planned + (further.planned == further.committed)
    return then.runs and then.restart.batch == following
