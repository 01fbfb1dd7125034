"""Kafka: what is so of every such source. Pure."""

from __future__ import annotations

from lastgood.checkpoint.source_offsets import KafkaOffset
from lastgood.sources.kind import SourceKind

KAFKA_SOURCE = SourceKind(
    name=KafkaOffset.kind,
    title="Kafka",
    may_be_read_again=True,
    is_read_again=True,
    notes_beginning=True,
    line_error='Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got',
    has_row_of_each_offset=True,
    price="kafka",
)
