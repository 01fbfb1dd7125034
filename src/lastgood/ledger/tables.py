"""The tables of a ledger; docs/reference/ledger.md tells what their columns mean."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import JSONB

PREFIX = "lastgood_"
"""Begins the name of every table: a ledger may share its database with others."""

metadata = sa.MetaData(
    naming_convention={
        "pk": "%(table_name)s_key",
        "uq": "%(table_name)s_%(column_0_N_name)s_key",
        "fk": "%(table_name)s_%(column_0_name)s_fkey",
        "ix": "%(table_name)s_%(column_0_N_name)s",
    }
)
_JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def _number(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger)


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text)


def _of_query() -> sa.Column[int]:
    return sa.Column("query", sa.ForeignKey(f"{PREFIX}query.id"), primary_key=True)


def _of_batch() -> sa.Column[int]:
    return sa.Column("batch_id", sa.BigInteger, primary_key=True, autoincrement=False)


query = sa.Table(
    f"{PREFIX}query",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("query_id", sa.Text, nullable=False),
    sa.Column("checkpoint", sa.Text, nullable=False),
    _text("name"),
    _number("named_at_ms"),
    _number("first_seen_ms"),
    _number("last_seen_ms"),
    sa.Column("initial_offsets", _JSON),
    sa.UniqueConstraint("query_id", "checkpoint"),
    sa.Index(None, "checkpoint"),
)

batch = sa.Table(
    f"{PREFIX}batch",
    metadata,
    _of_query(),
    _of_batch(),
    sa.Column("told_by", sa.Text, nullable=False),
    sa.Column("is_committed", sa.Boolean, nullable=False),
    _number("planned_at_ms"),
    _number("committed_at_ms"),
    _number("batch_watermark_ms"),
    _number("next_batch_watermark_ms"),
    _number("event_time_min_ms"),
    _number("event_time_max_ms"),
    _number("event_time_avg_ms"),
    _number("num_input_rows"),
    _number("num_output_rows"),
    _number("num_rows_dropped_by_watermark"),
    _number("num_state_rows"),
    _number("state_memory_used_bytes"),
    _number("batch_duration_ms"),
    sa.Column("duration_ms", _JSON),
    _text("run_id"),
    _number("trigger_at_ms"),
    _number("recorded_at_ms"),
    _text("sink"),
    sa.Column("sink_metrics", _JSON),
    _number("plan_first_seen_ms"),
    _number("plan_last_seen_ms"),
    _number("commit_seen_ms"),
    _number("commit_written_ms"),
    sa.Column("former_plans", _JSON),
    sa.Index(None, "query", "planned_at_ms"),
)

source = sa.Table(
    f"{PREFIX}source",
    metadata,
    _of_query(),
    _of_batch(),
    sa.Column("source_id", sa.Text, primary_key=True),
    _text("description"),
    _text("subscription_kind"),
    _text("subscription"),
    _text("start_offset"),
    _text("end_offset"),
    _text("latest_offset"),
    _number("num_input_rows"),
    sa.Column("metrics", _JSON),
)

offset_range = sa.Table(
    f"{PREFIX}range",
    metadata,
    _of_query(),
    _of_batch(),
    sa.Column("source_id", sa.Text, primary_key=True),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("partition", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("from_offset", sa.BigInteger, nullable=False),
    sa.Column("to_offset", sa.BigInteger, nullable=False),
    sa.Index(f"{PREFIX}range_place", "query", "topic", "partition", "to_offset", "from_offset", "batch_id"),
)

state = sa.Table(
    f"{PREFIX}state",
    metadata,
    _of_query(),
    _of_batch(),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    _text("operator_name"),
    _number("num_rows_total"),
    _number("num_rows_updated"),
    _number("num_rows_removed"),
    _number("num_rows_dropped_by_watermark"),
    _number("memory_used_bytes"),
    _number("num_shuffle_partitions"),
    _number("num_state_store_instances"),
    _number("commit_time_ms"),
    sa.Column("custom_metrics", _JSON),
)

topic = sa.Table(
    f"{PREFIX}topic",
    metadata,
    _of_query(),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("topic_id", sa.Text, primary_key=True),
    _number("first_seen_ms"),
    _number("last_seen_ms"),
    _number("first_batch_id"),
    _number("last_batch_id"),
)

run = sa.Table(
    f"{PREFIX}run",
    metadata,
    _of_query(),
    sa.Column("run_id", sa.Text, primary_key=True),
    _text("query_name"),
    _text("spark_version"),
    _text("application_id"),
    _number("started_at_ms"),
    _number("ended_at_ms"),
    _number("last_batch_id"),
)

failure = sa.Table(
    f"{PREFIX}failure",
    metadata,
    sa.Column("failure_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    _number("recorded_at_ms"),
    _text("query_id"),
    _text("run_id"),
    _text("query_name"),
    _text("checkpoint"),
    _number("batch_id"),
    _text("condition"),
    _text("message"),
    sa.Column("causes", _JSON),
    sa.Column("start_offsets", _JSON),
    sa.Column("end_offsets", _JSON),
    sa.Index(None, "checkpoint"),
    sa.Index(None, "query_id"),
)

filled = sa.Table(
    f"{PREFIX}filled",
    metadata,
    sa.Column("folder", sa.Text, primary_key=True),
    sa.Column("name", sa.Text, primary_key=True),
    sa.Column("position", sa.BigInteger, nullable=False),
)
