"""Repairs of single files of the logs that are missing, damaged, or in the way. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.checkpoint.commits import CommitEntry, parse_commit_entry
from lastgood.checkpoint.damage import Damage, DamageKind
from lastgood.checkpoint.layout import COMMITS, METADATA, OFFSETS, SOURCES, parse_log_name
from lastgood.checkpoint.logs import LogListing
from lastgood.checkpoint.offsets import OffsetEntry, parse_offset_entry
from lastgood.checkpoint.source_offsets import TextOffset, VoidOffset
from lastgood.planning.draft import Edit
from lastgood.planning.repairs.lost import list_mirrored, list_source_files
from lastgood.planning.repairs.repair import Repair, Work, copy_from_mirror, name_copy, refuse
from lastgood.planning.repairs.sinks import retire_orphan
from lastgood.planning.standing import Standing
from lastgood.query.prediction.skipping import may_be_skipped
from lastgood.query.sinks import SinkView
from lastgood.query.source_logs import find_logs_behind
from lastgood.query.stale_snapshots import find_stale_snapshots

_NO_OFFSET = (VoidOffset, TextOffset)
_SHOWN = 80


def repair_newest_plan(work: Work) -> Repair | None:
    """The newest plan cannot be read.

    Raises:
        RepairRefusedError: its range is known to nobody, and needed.
    """
    standing = work.standing
    log = standing.checkpoint.offsets
    listed = log.listing.newest_listed
    if listed is None or listed < 0:
        return None
    entry = log.entries.get(listed)
    if listed in log.ids and not isinstance(entry, Damage) and not _lacks_offsets(standing, listed):
        return None
    if isinstance(entry, Damage) and entry.kind is DamageKind.VERSION_TOO_NEW:
        return None
    path, why = f"{OFFSETS}/{listed}", f"the plan of batch {listed} cannot be read"
    others = tuple(_remove_namesakes(OFFSETS, log.listing, listed))
    copy = copy_from_mirror(work, path, why)
    if copy is not None and isinstance(parse_offset_entry(copy.after or b""), OffsetEntry):
        return Repair((*others, copy), rests_on=(name_copy(path),), keeps_state=True)
    if listed <= standing.committed:
        raise refuse(
            standing,
            f"the plan of batch {listed}, which is committed, {_explain_unread(entry)[0]}",
            subject=path,
            found=_explain_unread(entry)[1],
            expected="a mirror or a backup that holds it",
            effect="where the query stands is written nowhere else",
            next=standing.observed.command("backup list"),
        )
    return retire_orphan(standing, listed, why, others)


def _explain_unread(entry: OffsetEntry | Damage | None) -> tuple[str, str]:
    """What is wrong with a plan, and what was found there."""
    if isinstance(entry, OffsetEntry):
        lacking = [line for line in entry.sources if isinstance(line.offset, _NO_OFFSET)]
        return f"lacks the offset of source {lacking[0].source_id}", lacking[0].text[:_SHOWN]
    if entry is None:
        return "cannot be read", "a name that Spark does not open"
    return "cannot be read", str(entry)


def _lacks_offsets(standing: Standing, batch_id: int) -> bool:
    """Whether a source has lost its offset since the plan before: Spark would silently read its batch again."""
    newest, before = standing.plan(batch_id), standing.plan(batch_id - 1)
    if newest is None or before is None:
        return False
    for line in newest.sources:
        was = before.source(line.source_id)
        if isinstance(line.offset, _NO_OFFSET) and was is not None and not isinstance(was.offset, _NO_OFFSET):
            return True
    return False


def _remove_namesakes(folder: str, listing: LogListing, batch_id: int) -> Iterator[Edit]:
    """Names such as `006` that Spark takes for this batch and cannot open."""
    for name, number in listing.noncanonical.items():
        if number == batch_id:
            yield Edit(f"{folder}/{name}", None, f"Spark lists it as batch {batch_id}, and cannot open it")


def repair_newest_commit(work: Work) -> Repair | None:
    """The newest commit cannot be read.

    Raises:
        RepairRefusedError: nobody can tell what it said.
    """
    standing = work.standing
    log = standing.checkpoint.commits
    listed = log.listing.newest_listed
    if listed is None or listed < 0:
        return None
    entry = log.entries.get(listed)
    if listed in log.ids and not isinstance(entry, Damage):
        return None
    if isinstance(entry, Damage) and entry.kind is DamageKind.VERSION_TOO_NEW:
        return None
    path, why = f"{COMMITS}/{listed}", f"the commit of batch {listed} cannot be read"
    others = tuple(_remove_namesakes(COMMITS, log.listing, listed))
    copy = copy_from_mirror(work, path, why)
    if copy is not None and isinstance(parse_commit_entry(copy.after or b""), CommitEntry):
        return Repair((*others, copy), rests_on=(name_copy(path),), keeps_state=True)
    if standing.planned == listed:
        removed = (Edit(path, None, f"{why}: the batch runs again"),) if listed in log.ids else ()
        return Repair((*others, *removed), drops=True)
    template, plan = standing.newest_commit, standing.plan(listed)
    if standing.planned > listed and template is not None and plan is not None:
        content = template.with_watermark(plan.batch_watermark_ms).to_bytes()
        rests_on = f"{OFFSETS}/{listed + 1}, which Spark plans only when batch {listed} is committed"
        return Repair((*others, Edit(path, content, why)), rests_on=(rests_on,))
    raise refuse(
        standing,
        f"the commit of batch {listed} cannot be read",
        subject=path,
        expected="a mirror that holds it, or its plan",
        next=standing.observed.command("backup list"),
    )


def repair_commits_ahead(work: Work) -> Repair | None:
    """Batches are committed whose plans are gone: Spark would send an old one through the sink again.

    Raises:
        RepairRefusedError: the mirror does not hold the plans that a start needs.
    """
    standing = work.standing
    newest, planned = standing.committed, standing.planned
    if newest <= planned:
        return None
    held = [batch_id for batch_id in list_mirrored(work.mirror, OFFSETS) if planned < batch_id <= newest]
    needed = {batch_id for batch_id in (newest - 1, newest) if batch_id > max(planned, -1)}
    if not needed.issubset(held):
        missing = ", ".join(f"{OFFSETS}/{batch_id}" for batch_id in sorted(needed.difference(held)))
        raise refuse(
            standing,
            "batches are committed whose plans are gone",
            subject=missing,
            found=f"{COMMITS}/{newest}, and no plan above {planned}",
            expected="a mirror or a backup that holds the plans",
            effect="a start would send an old batch through the sink again, and then fail",
            next=standing.observed.command("backup list"),
        )
    why = f"batch {newest} is committed, and its plan is gone"
    edits = tuple(Edit(f"{OFFSETS}/{n}", work.mirror[f"{OFFSETS}/{n}"], why) for n in held)
    return Repair(edits, rests_on=(name_copy(f"{OFFSETS}/{newest}"),), keeps_state=True)


def repair_plan_before(work: Work) -> Repair | None:
    """The plan before the newest one cannot be read.

    Raises:
        RepairRefusedError: it says where a batch begins, and nobody else does.
    """
    standing = work.standing
    newest = standing.planned
    entry = standing.checkpoint.offsets.entries.get(newest - 1)
    if newest < 1 or isinstance(entry, OffsetEntry):
        return None
    path = f"{OFFSETS}/{newest - 1}"
    why = f"Spark reads it together with {OFFSETS}/{newest}"
    copy = copy_from_mirror(work, path, why)
    if copy is not None and isinstance(parse_offset_entry(copy.after or b""), OffsetEntry):
        return Repair((copy,), rests_on=(name_copy(path),), keeps_state=True)
    plan = standing.plan(newest)
    lacking = [each.sink.location for each in standing.sinks if _may_lack(each, newest)]
    # What stands in for it ends where batch `newest` does, which then reads nothing: a sink that lacks its rows, and
    # would get them from there, would never get them.
    if plan is not None and not standing.has_orphan and standing.is_kafka_only and not lacking:
        rests_on = f"{OFFSETS}/{newest}, which is committed: Kafka is not asked for that batch again"
        return Repair((Edit(path, plan.to_bytes(), f"{why}; a copy of that will do"),), rests_on=(rests_on,))
    if lacking:
        lacks = f", and {lacking[0]} lacks what it read"
    else:
        lacks = ""
    if entry is None:
        sentence = f"the plan of batch {newest - 1} is gone"
    else:
        sentence = f"the plan of batch {newest - 1} is damaged"
    damage = None
    if entry is not None:
        damage = str(entry)
    raise refuse(
        standing,
        sentence,
        subject=path,
        found=damage,
        expected="a mirror or a backup that holds it",
        effect=f"where batch {newest} begins is written nowhere else{lacks}",
        next=standing.observed.command("backup list"),
    )


def _may_lack(reading: SinkView, batch_id: int) -> bool:
    """Whether a sink that leaves marks shows none of this batch, which may have rows."""
    is_behind = reading.sink.known and not reading.shows_none and reading.shown < batch_id
    return is_behind and reading.may_any_have_rows(range(reading.shown + 1, batch_id + 1))


def repair_source_logs(work: Work) -> Repair | None:
    """A source's own log has a hole or a damaged entry that stops the start, or lost its end; the mirror has it."""
    stop = work.standing.restart.stop
    if work.standing.runs:
        name = next(iter(find_logs_behind(work.standing.checkpoint)), None)
    else:
        name = None
        if stop and stop.subject.startswith(f"{SOURCES}/"):
            name = stop.subject.split("/")[1]
    if name is None:
        return None
    folder = f"{SOURCES}/{name}"
    log = next((log for log in work.standing.checkpoint.sources if log.name == name), None)
    sound: set[str] = set()
    if log is not None:
        sound = {f"{folder}/{log.entry_name(n)}" for n in log.listing.ids} - set(log.damage)
    missing = [path for path in list_source_files(work.mirror, folder) if path not in sound]
    edits = tuple(Edit(path, work.mirror[path], "the source reads it when it starts") for path in missing)
    if not edits:
        return None
    return Repair(edits, rests_on=tuple(map(name_copy, missing[-1:])), keeps_state=True)


def remove_strays(work: Work) -> Repair | None:
    """Something that Spark did not write stands in its way."""
    stop = work.standing.restart.stop
    if work.standing.runs or stop is None:
        return None
    folder, _, name = stop.subject.rpartition("/")
    checkpoint = work.standing.checkpoint
    logs: dict[str, LogListing] = {log.folder: log.listing for log in (checkpoint.offsets, checkpoint.commits)}
    if name.startswith(".") and name.endswith(".crc"):
        left = logs | {log.folder: log.listing for log in checkpoint.sources}
        listed = [f"{folder}/{each}" for folder, listing in left.items() for each in listing.stale_checksums]
        paths = [*([stop.subject] if stop.subject == f".{METADATA}.crc" else []), *listed]
        return _set_aside(paths, "its file is gone, and that of a new one cannot take its place")
    if stop.subject in logs and not checkpoint.offsets.ids:
        paths = [f"{stop.subject}/{each}" for each in logs[stop.subject].foreign if not each.endswith("/")]
        return _set_aside(paths, "the folder must be empty when batch 0 is planned")
    is_negative = (found := parse_log_name(name)) is not None and found.batch_id < 0
    if folder in logs and is_negative:
        return _set_aside([stop.subject], "no batch has this number")
    return None


def remove_stale_state(work: Work) -> Repair | None:
    """Snapshots of the state are of batches that the logs do not know: a later start would go on from them."""
    standing = work.standing
    if any(repair.drops for repair in work.repairs):
        return None
    newest = max(standing.planned, standing.committed) + 1
    stale = find_stale_snapshots(standing.checkpoint)
    if any(each.batch is None for each in stale):
        return Repair((), rests_on=(f"version {newest} of the state, the newest that the logs know",), drops=True)
    is_made_again = standing.has_orphan and not may_be_skipped(standing.observed.sinks, standing.planned)
    if is_made_again and any(each.batch == standing.planned for each in stale):
        line = f"version {standing.planned} of the state: what there is of version {newest} is of an older plan"
        return Repair((), rests_on=(line,), drops=True)
    return None


def _set_aside(paths: list[str], why: str) -> Repair | None:
    if not paths:
        return None
    return Repair(tuple(Edit(path, None, why) for path in paths), keeps_state=True)
