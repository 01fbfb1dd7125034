"""Repairs of a checkpoint that is gone, or whose query id is: from the mirror, or from what a sink knows. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.layout import (
    COMMITS,
    METADATA,
    OFFSETS,
    SOURCES,
    find_newest_batch,
    parse_batch,
    parse_log_name,
)
from lastgood.checkpoint.logs import LogListing
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.planning.draft import Edit
from lastgood.planning.log_edits import list_names_in
from lastgood.planning.price import Guarantee
from lastgood.planning.repairs.repair import Repair, Work, name_copy, refuse
from lastgood.planning.standing import see_as
from lastgood.query.lost import MIRROR
from lastgood.query.sinks import NONE
from lastgood.sinks.evidence import DedupeKey

RETAINED: Final = 101
"""So many batches Spark keeps in its logs by default; older ones it would remove at once."""


def list_mirrored(mirror: Mapping[str, bytes], log: str) -> dict[int, bytes]:
    """The entries of the offset log or the commit log that a mirror holds, oldest first."""
    batches = ((parse_batch(path, log), raw) for path, raw in mirror.items())
    return dict(sorted((batch_id, raw) for batch_id, raw in batches if batch_id is not None))


def find_newest_mirrored(mirror: Mapping[str, bytes]) -> OffsetEntry | None:
    """The newest plan in a mirror that can be read."""
    parsed = (parse_offset_entry(raw) for raw in reversed(list_mirrored(mirror, OFFSETS).values()))
    return next((entry for entry in parsed if isinstance(entry, OffsetEntry)), None)


def restore_lost_checkpoint(work: Work) -> Repair | None:
    """No batch is planned or committed, and the mirror knows batches of this query."""
    if _are_logs_lost(work) and list_mirrored(work.mirror, OFFSETS):
        return restore_from_mirror(work, work.mirror)
    return None


def restore_lost_logs(work: Work) -> Repair | None:
    """The same where the state is to be made anew: that it is gone matters no more."""
    if _are_logs_lost(work) and find_newest_mirrored(work.mirror) is not None:
        return _put_back(work, work.mirror)
    return None


def _are_logs_lost(work: Work) -> bool:
    checkpoint = work.standing.checkpoint
    listings = (checkpoint.offsets.listing, checkpoint.commits.listing)
    return all(each.newest_listed is None for each in listings)


def restore_from_mirror(work: Work, mirror: Mapping[str, bytes]) -> Repair:
    """All that the mirror holds is put in place, and what lies beyond it is set aside.

    Raises:
        RepairRefusedError: the query kept state, which is in no mirror.
    """
    newest = find_newest_mirrored(mirror)
    if newest is None:
        raise refuse(work.standing, "the mirror holds no plan that can be read", next=_make_backups_command(work))
    observed = work.standing.observed
    state = observed.checkpoint.state
    keeps_state = observed.is_stateful or work.facts.is_state_kept or newest.batch_watermark_ms > 0
    if keeps_state and (state is None or not state.operators):
        if newest.batch_watermark_ms > 0:
            found = f"a watermark of {newest.batch_watermark_ms} ms in the mirror, and no state"
        else:
            found = "a query that keeps state, by what was recorded of it or by its sink, and no state"
        if work.facts.is_state_kept:
            known, then = "a backup has kept it", observed.command("backup restore")
        else:
            known, then = "no mirror holds state", observed.command("plan", "--goal", "recompute")
        raise refuse(
            work.standing,
            f"the state of the query is gone, and {known}",
            found=found,
            expected="the folder state",
            next=then,
        )
    return _put_back(work, mirror)


def _put_back(work: Work, mirror: Mapping[str, bytes]) -> Repair:
    observed, query_id = work.standing.observed, work.facts.mirrored_id
    edits = (*_set_beyond_aside(work, mirror), *_list_wanted(mirror, query_id))
    if query_id:
        before = see_as(observed, query_id, asked_as=work.standing.query_id)
    else:
        before = observed
    rests_on = f"{name_copy(f'offsets/{max(list_mirrored(mirror, OFFSETS))}')}, its newest plan"
    repair = Repair(edits, rests_on=(rests_on,), keeps_state=True)
    if work.with_repair(repair, before).standing.sinks_known:
        return repair
    unknown = "what was planned after it nobody knows, since not every sink tells"
    return replace(repair, word=Guarantee.AT_LEAST_ONCE, rests_on=(f"{rests_on}; {unknown}",))


def _list_wanted(mirror: Mapping[str, bytes], query_id: str | None) -> Iterator[Edit]:
    why = f"as {MIRROR} holds it"
    if METADATA in mirror or query_id is not None:
        yield Edit(METADATA, mirror.get(METADATA, QueryMetadata(query_id or "").to_bytes()), why)
    for folder in sorted({path.rpartition("/")[0] for path in mirror if path.startswith(f"{SOURCES}/")}):
        for path in list_source_files(mirror, folder):
            yield Edit(path, mirror[path], why)
    for log in (OFFSETS, COMMITS):
        for batch_id, raw in list(list_mirrored(mirror, log).items())[-RETAINED:]:
            yield Edit(f"{log}/{batch_id}", raw, why)


def list_source_files(mirror: Mapping[str, bytes], folder: str) -> list[str]:
    """The files of a source's log that a start reads: from the last compaction but one on."""
    names = (path.removeprefix(f"{folder}/") for path in mirror if path.startswith(f"{folder}/"))
    parsed = {name: parse_log_name(name, compactible=True) for name in names}
    compact = sorted(found.batch_id for found in parsed.values() if found and found.is_compact)[-2:]
    if compact:
        first = compact[0]
    else:
        first = 0
    return sorted(f"{folder}/{name}" for name, found in parsed.items() if found and found.batch_id >= first)


def _set_beyond_aside(work: Work, mirror: Mapping[str, bytes]) -> Iterator[Edit]:
    """What lies in the logs and is not of the query as the mirror knows it."""
    is_same = work.standing.query_id == work.facts.mirrored_id
    checkpoint = work.standing.checkpoint
    listings: dict[str, LogListing] = {log.folder: log.listing for log in (checkpoint.offsets, checkpoint.commits)}
    listings |= {log.folder: log.listing for log in checkpoint.sources}
    for folder, listing in listings.items():
        held = find_newest_batch(_take_entry_name(path, folder) for path in mirror)
        for name in sorted(list_names_in(listing)):
            found = parse_log_name(name, compactible=True)
            is_newer = found is not None and (not is_same or found.batch_id > (NONE if held is None else held))
            if f"{folder}/{name}" not in mirror and (is_newer or name in listing.stale_checksums):
                yield Edit(f"{folder}/{name}", None, f"{MIRROR} knows nothing of it")


def _take_entry_name(path: str, folder: str) -> str:
    return path.removeprefix(f"{folder}/").removesuffix(".compact")


def restore_lost_id(work: Work) -> Repair | None:
    """`metadata` is gone or damaged: sinks that go by the query id would take every batch for a new one.

    Raises:
        RepairRefusedError: nobody knows the id.
    """
    checkpoint = work.standing.checkpoint
    if isinstance(checkpoint.query, QueryMetadata):
        return None
    listed = (checkpoint.offsets.listing.newest_listed, checkpoint.commits.listing.newest_listed)
    if listed == (None, None):
        why = "it cannot be read, and no batch was ever planned"
        is_damaged = isinstance(checkpoint.query, Damage)
        if not is_damaged:
            return None
        return Repair((Edit(METADATA, None, why),), keeps_state=True)
    why = "the id of the query is lost"
    copy = work.mirror.get(METADATA)
    if copy is not None and isinstance(parse_query_metadata(copy), QueryMetadata):
        return Repair((Edit(METADATA, copy, why),), rests_on=(name_copy(METADATA),), keeps_state=True)
    query_id, rests_on = work.facts.mirrored_id, f"the query id that {MIRROR} knows"
    if query_id is None:
        query_id, rests_on = _find_id_by_sink(work)
    edit = Edit(METADATA, QueryMetadata(query_id).to_bytes(), why)
    return Repair((edit,), rests_on=(rests_on,), keeps_state=True)


def _find_id_by_sink(work: Work) -> tuple[str, str]:
    """The one query that a Delta table knows and that stands where this checkpoint stands (row 14)."""
    standing = work.standing
    stands = {standing.committed, standing.planned} - {NONE}
    tables = [each.sink for each in standing.sinks if each.sink.traits.tells_query_ids]
    found = [
        (name, table, last)
        for table in tables
        for name, last in table.others.items()
        if table.dedupe_key is DedupeKey.QUERY_ID and last in stands and _is_id(name)
    ]
    if len({name for name, _, _ in found}) == 1 and len(found) == len(tables):
        name, table, last = found[0]
        mark = f"{table.traits.mark or 'batch'} {last} of query {name}"
        return name, f"{mark} in {table.location}, the only one that stands where the logs do"
    raise refuse(
        standing,
        "the id of the query is lost, and nobody tells it",
        subject=METADATA,
        found=f"{len(found)} candidates in the sinks" if found else "no mirror, and no sink that shows its batches",
        expected="the mirror, or exactly one query in the Delta table whose last batch is the newest one here",
        effect="sinks that go by the id would take its batches for those of another query",
        next=_make_backups_command(work),
    )


def _is_id(name: str) -> bool:
    return isinstance(parse_query_metadata(QueryMetadata(name).to_bytes()), QueryMetadata)


def _make_backups_command(work: Work) -> str:
    return work.standing.observed.command("backup list")
