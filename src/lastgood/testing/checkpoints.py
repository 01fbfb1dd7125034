"""Checkpoints without Spark: the log files of a query, byte for byte as Spark 4.2 writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from lastgood.checkpoint.checksums import HadoopChecksum
from lastgood.checkpoint.commits import CommitEntry
from lastgood.checkpoint.file_logs import COMPACT_INTERVAL_DEFAULT, SourceFile, is_compaction, make_source_log_entry
from lastgood.checkpoint.initial import InitialOffset
from lastgood.checkpoint.lines import Json, encode, to_json
from lastgood.checkpoint.query import QueryMetadata
from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, SourceOffset
from lastgood.frozen import dataclass

QUERY_ID = "0dcd0ea6-5866-4db8-bdb7-960f2e49c827"
STARTED_MS = 1_795_220_516_284
_STATE = "spark.sql.streaming.stateStore"
PINNED_CONF: Mapping[str, str] = MappingProxyType(
    {
        f"{_STATE}.providerClass": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
        f"{_STATE}.rocksdb.mergeOperatorVersion": "2",
        f"{_STATE}.rocksdb.formatVersion": "5",
        "spark.sql.streaming.queryEvolution.enableSourceEvolution": "false",
        f"{_STATE}.encodingFormat": "unsaferow",
        "spark.sql.streaming.statefulOperator.useStrictDistribution": "true",
        "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": "2",
        "spark.sql.streaming.multipleWatermarkPolicy": "min",
        f"{_STATE}.rowChecksum.enabled": "false",
        "spark.sql.streaming.aggregation.stateFormatVersion": "2",
        "spark.sql.function.protobufExtensions.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.join.stateFormatVersion": "2",
        f"{_STATE}.compression.codec": "lz4",
        "spark.sql.optimizer.pruneFiltersCanPruneStreamingSubplan": "false",
    }
)
"""What Spark 4.2 pins in every entry of the offset log."""


class Input(Protocol):
    """The one source of a query that is built."""

    @property
    def per_batch(self) -> int:
        """How much a batch reads if nothing else is said."""

    def end(self, ends: Sequence[int]) -> SourceOffset:
        """The end offset of the newest batch; `ends` is how much had been read after each batch."""

    def log(self, ends: Sequence[int]) -> tuple[str, bytes] | None:
        """Name and content of what the source itself writes down when the newest batch is planned."""


@dataclass(frozen=True, slots=True)
class KafkaInput:
    """A topic, of which each batch reads as many offsets from every partition."""

    topic: str = "orders"
    partitions: int = 2
    per_batch: int = 5

    def end(self, ends: Sequence[int]) -> KafkaOffset:
        """See `Input.end`."""
        return self._at(ends[-1])

    def log(self, ends: Sequence[int]) -> tuple[str, bytes] | None:
        """See `Input.log`."""
        if len(ends) == 1:
            return ("0", InitialOffset(self._at(0), has_nul=True).to_bytes())
        return None

    def _at(self, offset: int) -> KafkaOffset:
        return KafkaOffset({self.topic: dict.fromkeys(range(self.partitions), offset)})


@dataclass(frozen=True, slots=True)
class FileInput:
    """A folder of files, of which each batch reads as many."""

    folder: str = "file:///data/input"
    per_batch: int = 1
    compact_interval: int = COMPACT_INTERVAL_DEFAULT

    def end(self, ends: Sequence[int]) -> FileOffset:
        """See `Input.end`."""
        return FileOffset(len(ends) - 1)

    def log(self, ends: Sequence[int]) -> tuple[str, bytes]:
        """See `Input.log`."""
        log_id = len(ends) - 1
        if is_compaction(log_id, self.compact_interval):
            files = [file for each in range(log_id + 1) for file in self._files(each, ends)]
            return f"{log_id}.compact", make_source_log_entry(files).raw
        return str(log_id), make_source_log_entry(self._files(log_id, ends)).raw

    def _files(self, log_id: int, ends: Sequence[int]) -> list[SourceFile]:
        if log_id:
            start = ends[log_id - 1]
        else:
            start = 0
        return [
            SourceFile(f"{self.folder}/f{n:03d}.json", 1_790_000_000_000 + 1000 * n, log_id)
            for n in range(start, ends[log_id])
        ]


class CheckpointBuilder:
    """A stateless query that plans and commits when it is told to.

    Example:
        >>> query = CheckpointBuilder(tmp_path / "checkpoint")
        >>> query.run(3)
        >>> query.plan()
        3
    """

    def __init__(
        self,
        folder: Path,
        source: Input | None = None,
        *,
        query_id: str = QUERY_ID,
        started_ms: int = STARTED_MS,
        interval_ms: int = 1000,
        checksums: bool = False,
    ) -> None:
        """Begin a checkpoint in `folder` with its file `metadata`.

        Args:
            folder: Made if it is not there.
            source: What the query reads; a topic of Kafka if nothing is said.
            query_id: Its id.
            started_ms: Processing time of batch 0, milliseconds since 1970.
            interval_ms: From one plan to the next.
            checksums: Write `.NAME.crc` beside every file, as Hadoop does on a local disk.
        """
        self.folder = folder
        self._source: Input = source or KafkaInput()
        self._now_ms = started_ms
        self._interval_ms = interval_ms
        self._checksums = checksums
        self._ends: list[int] = []
        for name in ("offsets", "commits", "sources/0"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        self._write("metadata", QueryMetadata(query_id).to_bytes())

    @property
    def planned(self) -> int:
        """The newest planned batch; -1 if there is none."""
        return len(self._ends) - 1

    def plan(self, amount: int | None = None, *, at_ms: int | None = None) -> int:
        """Plan the next batch and give its number.

        Args:
            amount: How much it reads, in the unit of its source; as all do if None.
            at_ms: Its processing time, milliseconds since 1970; that of the batch before and the interval if None.
        """
        if at_ms is not None:
            self._now_ms = at_ms
        if self._ends:
            before = self._ends[-1]
        else:
            before = 0
        self._ends.append(before + (self._source.per_batch if amount is None else amount))
        own = self._source.log(self._ends)
        if own is not None:
            self._write(f"sources/0/{own[0]}", own[1])
        metadata: dict[str, Json] = {"batchWatermarkMs": 0, "batchTimestampMs": self._now_ms, "conf": dict(PINNED_CONF)}
        self._now_ms += self._interval_ms
        lines = ["v1", to_json(metadata), self._source.end(self._ends).to_text()]
        self._write(f"offsets/{self.planned}", encode("\n".join(lines)))
        return self.planned

    def commit(self) -> None:
        """Commit the newest planned batch."""
        self._write(f"commits/{self.planned}", CommitEntry.of(1, next_batch_watermark_ms=0).to_bytes())

    def run(self, batches: int) -> None:
        """Plan and commit so many batches."""
        for _ in range(batches):
            self.plan()
            self.commit()

    def drop_plan(self) -> None:
        """Take the newest plan back, with its commit and what its source wrote down: `plan` then plans it anew."""
        for log in ("offsets", "commits", "sources/0"):
            for name in (str(self.planned), f"{self.planned}.compact"):
                if log != "sources/0" or not isinstance(self._source, KafkaInput):
                    self._remove(f"{log}/{name}")
        self._ends.pop()

    def purge(self, retain: int = 100) -> None:
        """Remove what Spark removes with `spark.sql.streaming.minBatchesToRetain`, after the newest plan."""
        for log in ("offsets", "commits"):
            for batch_id in range(self.planned - retain):
                self._remove(f"{log}/{batch_id}")

    def _write(self, path: str, content: bytes) -> None:
        file = self.folder / path
        draft = file.with_name(f".{file.name}.tmp")
        draft.write_bytes(content)
        draft.replace(file)  # whole, as Spark puts it there
        if self._checksums:
            file.with_name(f".{file.name}.crc").write_bytes(HadoopChecksum.of(content).to_bytes())

    def _remove(self, path: str) -> None:
        file = self.folder / path
        file.unlink(missing_ok=True)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
