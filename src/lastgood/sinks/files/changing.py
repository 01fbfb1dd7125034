"""What lastgood changes of a file sink: entries of its log are set aside, and put back."""

from __future__ import annotations

from lastgood.checkpoint.file_logs import COMPACT_SUFFIX
from lastgood.checkpoint.layout import SINK_LOG
from lastgood.sinks.files.sink import FileSink
from lastgood.sinks.files.step import FileSinkStep
from lastgood.steps.carrying import Site
from lastgood.steps.moved_file import MovedFile
from lastgood.steps.step import SinkEdit
from lastgood.storage.reading import Storage, parse_location
from lastgood.storage.rights import WORK_SUFFIX

_SECONDS = 60.0


def make_file_sink_steps(edit: SinkEdit, storage: Storage) -> tuple[FileSinkStep, ...] | str:
    """The steps that take a file sink back, a step for each entry; see `SinkChanges.measure`."""
    sink = parse_location(edit.location)
    log = FileSink(storage, sink, timeout_seconds=_SECONDS).read()
    if log is None or not log.can_be_cut_to(edit.batch):
        return "entries of its log that are needed to read what is left are gone"
    names = set(storage.names(sink / SINK_LOG) or ())
    steps = []
    for batch_id in log.ids:
        if batch_id <= edit.batch:
            continue
        if batch_id in log.listing.compact:
            name = f"{batch_id}{COMPACT_SUFFIX}"
        else:
            name = str(batch_id)
        for entry in (name, f".{name}.crc"):
            found = None
            if entry in names:
                found = storage.stat(sink / SINK_LOG / entry)
            if found is not None:
                steps.append(FileSinkStep(edit.location, f"{SINK_LOG}/{entry}", found.size or 0, edit.why))
    return tuple(steps)


def carry_entry(step: FileSinkStep, site: Site) -> MovedFile:
    """The entry of a step, at its place or set aside; it is kept beside the sink, whose storage may be another one."""
    sink = parse_location(step.folder)
    kept = sink.sibling(WORK_SUFFIX) / f"recoveries/{site.recovery}/before/{step.entry}"
    return MovedFile(site.open_other(sink), sink / step.entry, kept, step.size)
