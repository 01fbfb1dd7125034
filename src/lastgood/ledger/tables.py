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


def _make_number_column(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger)


def _make_text_column(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text)


def _make_query_column() -> sa.Column[int]:
    return sa.Column("query", sa.ForeignKey(f"{PREFIX}query.id"), primary_key=True)


def _make_batch_column() -> sa.Column[int]:
    return sa.Column("batch_id", sa.BigInteger, primary_key=True, autoincrement=False)


query = sa.Table(
    f"{PREFIX}query",
    metadata,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("query_id", sa.Text, nullable=False),
    sa.Column("checkpoint", sa.Text, nullable=False),
    _make_text_column("name"),
    _make_number_column("named_at_ms"),
    _make_number_column("first_seen_ms"),
    _make_number_column("last_seen_ms"),
    sa.Column("initial_offsets", _JSON),
    sa.UniqueConstraint("query_id", "checkpoint"),
    sa.Index(None, "checkpoint"),
)

batch = sa.Table(
    f"{PREFIX}batch",
    metadata,
    _make_query_column(),
    _make_batch_column(),
    sa.Column("told_by", sa.Text, nullable=False),
    sa.Column("is_committed", sa.Boolean, nullable=False),
    _make_number_column("planned_at_ms"),
    _make_number_column("committed_at_ms"),
    _make_number_column("batch_watermark_ms"),
    _make_number_column("next_batch_watermark_ms"),
    _make_number_column("event_time_min_ms"),
    _make_number_column("event_time_max_ms"),
    _make_number_column("event_time_avg_ms"),
    _make_number_column("num_input_rows"),
    _make_number_column("num_output_rows"),
    _make_number_column("num_rows_dropped_by_watermark"),
    _make_number_column("num_state_rows"),
    _make_number_column("state_memory_used_bytes"),
    _make_number_column("batch_duration_ms"),
    sa.Column("duration_ms", _JSON),
    _make_text_column("run_id"),
    _make_number_column("trigger_at_ms"),
    _make_number_column("recorded_at_ms"),
    _make_text_column("sink"),
    sa.Column("sink_metrics", _JSON),
    _make_number_column("plan_first_seen_ms"),
    _make_number_column("plan_last_seen_ms"),
    _make_number_column("commit_seen_ms"),
    _make_number_column("commit_written_ms"),
    sa.Column("former_plans", _JSON),
    sa.Index(None, "query", "planned_at_ms"),
)

source = sa.Table(
    f"{PREFIX}source",
    metadata,
    _make_query_column(),
    _make_batch_column(),
    sa.Column("source_id", sa.Text, primary_key=True),
    _make_text_column("description"),
    _make_text_column("subscription_kind"),
    _make_text_column("subscription"),
    _make_text_column("start_offset"),
    _make_text_column("end_offset"),
    _make_text_column("latest_offset"),
    _make_number_column("num_input_rows"),
    sa.Column("metrics", _JSON),
)

offset_range = sa.Table(
    f"{PREFIX}range",
    metadata,
    _make_query_column(),
    _make_batch_column(),
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
    _make_query_column(),
    _make_batch_column(),
    sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
    _make_text_column("operator_name"),
    _make_number_column("num_rows_total"),
    _make_number_column("num_rows_updated"),
    _make_number_column("num_rows_removed"),
    _make_number_column("num_rows_dropped_by_watermark"),
    _make_number_column("memory_used_bytes"),
    _make_number_column("num_shuffle_partitions"),
    _make_number_column("num_state_store_instances"),
    _make_number_column("commit_time_ms"),
    sa.Column("custom_metrics", _JSON),
)

topic = sa.Table(
    f"{PREFIX}topic",
    metadata,
    _make_query_column(),
    sa.Column("topic", sa.Text, primary_key=True),
    sa.Column("topic_id", sa.Text, primary_key=True),
    _make_number_column("first_seen_ms"),
    _make_number_column("last_seen_ms"),
    _make_number_column("first_batch_id"),
    _make_number_column("last_batch_id"),
)

run = sa.Table(
    f"{PREFIX}run",
    metadata,
    _make_query_column(),
    sa.Column("run_id", sa.Text, primary_key=True),
    _make_text_column("query_name"),
    _make_text_column("spark_version"),
    _make_text_column("application_id"),
    _make_number_column("started_at_ms"),
    _make_number_column("ended_at_ms"),
    _make_number_column("last_batch_id"),
)

failure = sa.Table(
    f"{PREFIX}failure",
    metadata,
    sa.Column("failure_id", sa.Text, primary_key=True),
    sa.Column("kind", sa.Text, nullable=False),
    _make_number_column("recorded_at_ms"),
    _make_text_column("query_id"),
    _make_text_column("run_id"),
    _make_text_column("query_name"),
    _make_text_column("checkpoint"),
    _make_number_column("batch_id"),
    _make_text_column("condition"),
    _make_text_column("message"),
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
