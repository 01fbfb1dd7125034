"""A checkpoint as it will be once some of its log files are changed, so that it can be judged beforehand. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from lastgood.checkpoint.commits import parse_commit_entry
from lastgood.checkpoint.contents import Checkpoint, Presence, recognise_mode, take_log_in_mode
from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.file_logs import parse_source_log_entry
from lastgood.checkpoint.initial import parse_source_entry
from lastgood.checkpoint.layout import METADATA, SOURCES, parse_log_name
from lastgood.checkpoint.logs import BatchLog, LogListing, SourceLog, list_log
from lastgood.checkpoint.offsets import parse_offset_entry
from lastgood.checkpoint.query import parse_query_metadata
from lastgood.planning.draft import Edit

EntryT = TypeVar("EntryT")
_After = Mapping[str, bytes | None]


def apply_edits(checkpoint: Checkpoint, edits: Iterable[Edit]) -> Checkpoint:
    """The checkpoint as `edits` leave it; its state is not touched."""
    after = {edit.path: edit.after for edit in edits}
    offsets = _edit_log(checkpoint.offsets, after, parse_offset_entry)
    commits = _edit_log(checkpoint.commits, after, parse_commit_entry)
    state = checkpoint.state
    mode = recognise_mode(offsets, commits, has_state=state is not None and bool(state.operators))
    query = checkpoint.query
    if METADATA in after:
        content = after[METADATA]
        query = None
        if content is not None:
            query = parse_query_metadata(content)
    is_there = checkpoint.presence is Presence.PRESENT or any(content is not None for content in after.values())
    presence = Presence.PRESENT if is_there else checkpoint.presence
    return replace(
        checkpoint,
        presence=presence,
        mode=mode,
        query=query,
        offsets=replace(offsets, entries=take_log_in_mode(offsets, mode)),
        commits=commits,
        sources=_edit_sources(checkpoint.sources, after),
        foreign=tuple(name for name in checkpoint.foreign if name not in after),
    )


def add_checksum_edits(edits: Iterable[Edit], checksums: Collection[str]) -> tuple[Edit, ...]:
    """The edits, and for each the `.NAME.crc` of Hadoop that no longer fits.

    Args:
        edits: A later one for the same file replaces an earlier one.
        checksums: Paths of every `.NAME.crc` in the logs.
    """
    found = {edit.path: edit for edit in edits}
    for path in list(found):
        beside = name_checksum_path(path)
        if beside in checksums:
            found.setdefault(beside, Edit(beside, None, f"the checksum of {path}"))
    return tuple(found.values())


def name_checksum_path(path: str) -> str:
    """Where Hadoop keeps the checksum of a file."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{name}.crc"


def list_names_in(listing: LogListing) -> set[str]:
    """What lies in the folder of a log, as it was listed."""
    entries = {listing.entry_name(n) for n in listing.ids}
    checksums = {f".{n}.crc" for n in listing.checksums}
    others = (*listing.noncanonical, *listing.stale_checksums, *listing.temporary, *listing.foreign)
    return {*entries, *checksums, *others}


def _edit_log(log: BatchLog[EntryT], after: _After, parse: Callable[[bytes], EntryT | Damage]) -> BatchLog[EntryT]:
    changed = _select_below(log.folder, after)
    if not changed:
        return log
    entries = dict(log.entries)
    for name, content in changed.items():
        found = parse_log_name(name)
        if found is None or not found.is_canonical:
            continue
        entries.pop(found.batch_id, None)
        if content is not None:
            entries[found.batch_id] = parse(content)
    return replace(log, listing=_edit_listing(log.listing, changed, compactible=False), entries=entries)


def _edit_sources(logs: tuple[SourceLog, ...], after: _After) -> tuple[SourceLog, ...]:
    known = {log.name: log for log in logs}
    for path in after:
        folder, _, rest = path.partition("/")
        if folder == SOURCES:
            name = rest.partition("/")[0]
            known.setdefault(name, SourceLog(name, LogListing()))
    ordered = sorted(known.values(), key=_rank_source)
    return tuple(_edit_source(log, _select_below(log.folder, after)) for log in ordered)


def _edit_source(log: SourceLog, changed: _After) -> SourceLog:
    if not changed:
        return log
    entries = dict(log.entries)
    for name, content in changed.items():
        found = parse_log_name(name, compactible=True)
        if found is None or not found.is_canonical:
            continue
        entries.pop(found.batch_id, None)
        if content is not None:
            parse = parse_source_entry if found.batch_id == 0 else parse_source_log_entry
            entries[found.batch_id] = parse(content)
    return replace(log, listing=_edit_listing(log.listing, changed, compactible=True), entries=entries)


def _rank_source(log: SourceLog) -> tuple[bool, int, str]:
    is_index = log.name.isdecimal()
    return not is_index, int(log.name) if is_index else 0, log.name


def _edit_listing(listing: LogListing, changed: _After, *, compactible: bool) -> LogListing:
    names = list_names_in(listing)
    for name, content in changed.items():
        if content is None:
            names.discard(name)
        else:
            names.add(name)
    return list_log(names, compactible=compactible)


def _select_below(folder: str, after: _After) -> dict[str, bytes | None]:
    prefix = f"{folder}/"
    return {path.removeprefix(prefix): content for path, content in after.items() if path.startswith(prefix)}
