"""Offsets of sources that lastgood cannot ask, as their connectors write them, and queries that read such a source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lastgood.checkpoint.damage import Damage
from lastgood.checkpoint.initial import InitialOffset
from lastgood.checkpoint.source_offsets import NumberOffset, SourceOffset, parse_source_offset

_AFTER = "49605240428222307037115827613554798409561082419642"
_SHARD = f'{{{{"iteratorType":"AFTER_SEQUENCE_NUMBER","iteratorPosition":"{_AFTER}{{}}"}}}}'

KINESIS = tuple(
    f'{{"shardId-000000000001":{_SHARD.format(5874 + batch)},'
    f'"metadata":{{"streamName":"my.stream.name1","batchId":"{batch}"}},'
    f'"shardId-000000000000":{_SHARD.format(2242 + batch)}}}'
    for batch in range(9)
)
"""As https://github.com/qubole/kinesis-sql/pull/78 quotes it."""
AUTO_LOADER = tuple(
    f'{{"seqNum":{batch},"sourceVersion":1,"lastBackfillStartTimeMs":1657033622925,'
    '"lastBackfillFinishTimeMs":1657033623542}'
    for batch in range(9)
)
PULSAR = tuple(f'{{"persistent://public/default/orders":[8,{batch},16,{batch},48,0]}}' for batch in range(9))
PYTHON = tuple(f'{{"pos":{batch}}}' for batch in range(9))
NUMBERS = tuple(map(str, range(9)))


@dataclass(frozen=True, slots=True)
class Lines:
    """A source of which only its lines in the offset log are known."""

    texts: Sequence[str]
    began_ms: int | None = None
    """What rate writes down when it begins."""
    per_batch: int = 1

    def end(self, ends: Sequence[int]) -> SourceOffset:
        """The offset of the newest batch."""
        found = parse_source_offset(self.texts[len(ends) - 1])
        assert not isinstance(found, Damage)
        return found

    def log(self, ends: Sequence[int]) -> tuple[str, bytes] | None:
        """Its beginning, if it writes one down."""
        if self.began_ms is None or len(ends) > 1:
            return None
        return "0", InitialOffset(NumberOffset(self.began_ms), has_nul=False).to_bytes()
