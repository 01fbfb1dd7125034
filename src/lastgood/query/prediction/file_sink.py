"""What keeps a file sink from noting down a batch in its own log. Pure."""

from __future__ import annotations

from lastgood.checkpoint.file_logs import derive_compact_interval, is_compaction, list_ids_read_at_start, name_entry
from lastgood.checkpoint.layout import SINK_LOG
from lastgood.checkpoint.logs import list_log
from lastgood.query.prediction.messages import CONCURRENT_FILE
from lastgood.query.prediction.restart import StartStage, Stop, StoppedError
from lastgood.query.prediction.spark_version import SPARK_4_0, SparkVersion
from lastgood.sinks.evidence import SinkEvidence


def write_batch(sink: SinkEvidence, batch_id: int, spark: SparkVersion, *, is_local: bool) -> None:
    """A file sink has written the files of a batch, and notes them down.

    Raises:
        StoppedError: it cannot.
    """
    if not sink.log_names:
        return
    listing = list_log(sink.log_names, compactible=True)
    interval = derive_compact_interval(listing.compact)
    name = name_entry(batch_id, interval)
    if is_compaction(batch_id, interval) and batch_id > 0:
        missing = [log_id for log_id in list_ids_read_at_start(batch_id - 1, interval) if log_id not in listing.ids]
        if missing:
            error = "BATCH_METADATA_NOT_FOUND" if spark >= SPARK_4_0 else "doesn't exist when compacting batch"
            raise _make_stopped(error, str(missing[0]), "it is due to be compacted, and is not there")
    if f"{name}/" in listing.foreign:
        raise _make_stopped(f"Race while writing batch {batch_id}", name, "a folder stands where the entry belongs")
    if is_local and f".{name}.crc" in listing.stale_checksums:
        because = "it is left over, and that of the new file cannot take its place"
        raise _make_stopped(CONCURRENT_FILE, f".{name}.crc", because)


def _make_stopped(error: str, name: str, because: str) -> StoppedError:
    return StoppedError(Stop(StartStage.SINK, error, f"{SINK_LOG}/{name}", because))
