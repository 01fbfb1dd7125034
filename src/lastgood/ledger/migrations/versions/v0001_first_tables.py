"""The first tables."""

# ruff: noqa: INP001 - a folder of scripts, loaded by their path

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects.postgresql import JSONB

revision = "0001"
down_revision = None

JSON = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def upgrade() -> None:
    """Make them."""
    _make_failure()
    _make_filled()
    _make_query()
    _make_batch()
    _make_range()
    _make_run()
    _make_source()
    _make_state()
    _make_topic()


def _make_failure() -> None:
    op.create_table(
        "lastgood_failure",
        sa.Column("failure_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("recorded_at_ms", sa.BigInteger()),
        sa.Column("query_id", sa.Text()),
        sa.Column("run_id", sa.Text()),
        sa.Column("query_name", sa.Text()),
        sa.Column("checkpoint", sa.Text()),
        sa.Column("batch_id", sa.BigInteger()),
        sa.Column("condition", sa.Text()),
        sa.Column("message", sa.Text()),
        sa.Column("causes", JSON),
        sa.Column("start_offsets", JSON),
        sa.Column("end_offsets", JSON),
        sa.PrimaryKeyConstraint("failure_id", name=op.f("lastgood_failure_key")),
    )
    op.create_index(
        op.f("lastgood_failure_checkpoint"),
        "lastgood_failure",
        ["checkpoint"],
    )
    op.create_index(
        op.f("lastgood_failure_query_id"),
        "lastgood_failure",
        ["query_id"],
    )


def _make_filled() -> None:
    op.create_table(
        "lastgood_filled",
        sa.Column("folder", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("position", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("folder", "name", name=op.f("lastgood_filled_key")),
    )


def _make_query() -> None:
    op.create_table(
        "lastgood_query",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("query_id", sa.Text(), nullable=False),
        sa.Column("checkpoint", sa.Text(), nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("named_at_ms", sa.BigInteger()),
        sa.Column("first_seen_ms", sa.BigInteger()),
        sa.Column("last_seen_ms", sa.BigInteger()),
        sa.Column("initial_offsets", JSON),
        sa.PrimaryKeyConstraint("id", name=op.f("lastgood_query_key")),
        sa.UniqueConstraint("query_id", "checkpoint", name=op.f("lastgood_query_query_id_checkpoint_key")),
    )
    op.create_index(
        op.f("lastgood_query_checkpoint"),
        "lastgood_query",
        ["checkpoint"],
    )


def _make_batch() -> None:
    op.create_table(
        "lastgood_batch",
        sa.Column("query", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("told_by", sa.Text(), nullable=False),
        sa.Column("is_committed", sa.Boolean(), nullable=False),
        sa.Column("planned_at_ms", sa.BigInteger()),
        sa.Column("committed_at_ms", sa.BigInteger()),
        sa.Column("batch_watermark_ms", sa.BigInteger()),
        sa.Column("next_batch_watermark_ms", sa.BigInteger()),
        sa.Column("event_time_min_ms", sa.BigInteger()),
        sa.Column("event_time_max_ms", sa.BigInteger()),
        sa.Column("event_time_avg_ms", sa.BigInteger()),
        sa.Column("num_input_rows", sa.BigInteger()),
        sa.Column("num_output_rows", sa.BigInteger()),
        sa.Column("num_rows_dropped_by_watermark", sa.BigInteger()),
        sa.Column("num_state_rows", sa.BigInteger()),
        sa.Column("state_memory_used_bytes", sa.BigInteger()),
        sa.Column("batch_duration_ms", sa.BigInteger()),
        sa.Column("duration_ms", JSON),
        sa.Column("run_id", sa.Text()),
        sa.Column("trigger_at_ms", sa.BigInteger()),
        sa.Column("recorded_at_ms", sa.BigInteger()),
        sa.Column("sink", sa.Text()),
        sa.Column("sink_metrics", JSON),
        sa.Column("plan_first_seen_ms", sa.BigInteger()),
        sa.Column("plan_last_seen_ms", sa.BigInteger()),
        sa.Column("commit_seen_ms", sa.BigInteger()),
        sa.Column("commit_written_ms", sa.BigInteger()),
        sa.Column("former_plans", JSON),
        sa.ForeignKeyConstraint(["query"], ["lastgood_query.id"], name=op.f("lastgood_batch_query_fkey")),
        sa.PrimaryKeyConstraint("query", "batch_id", name=op.f("lastgood_batch_key")),
    )
    op.create_index(
        op.f("lastgood_batch_query_planned_at_ms"),
        "lastgood_batch",
        ["query", "planned_at_ms"],
    )


def _make_range() -> None:
    op.create_table(
        "lastgood_range",
        sa.Column("query", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("partition", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("from_offset", sa.BigInteger(), nullable=False),
        sa.Column("to_offset", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(["query"], ["lastgood_query.id"], name=op.f("lastgood_range_query_fkey")),
        sa.PrimaryKeyConstraint(
            "query", "batch_id", "source_id", "topic", "partition", name=op.f("lastgood_range_key")
        ),
    )
    op.create_index(
        "lastgood_range_place",
        "lastgood_range",
        ["query", "topic", "partition", "to_offset", "from_offset", "batch_id"],
    )


def _make_run() -> None:
    op.create_table(
        "lastgood_run",
        sa.Column("query", sa.Integer(), nullable=False),
        sa.Column("run_id", sa.Text(), nullable=False),
        sa.Column("query_name", sa.Text()),
        sa.Column("spark_version", sa.Text()),
        sa.Column("application_id", sa.Text()),
        sa.Column("started_at_ms", sa.BigInteger()),
        sa.Column("ended_at_ms", sa.BigInteger()),
        sa.Column("last_batch_id", sa.BigInteger()),
        sa.ForeignKeyConstraint(["query"], ["lastgood_query.id"], name=op.f("lastgood_run_query_fkey")),
        sa.PrimaryKeyConstraint("query", "run_id", name=op.f("lastgood_run_key")),
    )


def _make_source() -> None:
    op.create_table(
        "lastgood_source",
        sa.Column("query", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("source_id", sa.Text(), nullable=False),
        sa.Column("description", sa.Text()),
        sa.Column("subscription_kind", sa.Text()),
        sa.Column("subscription", sa.Text()),
        sa.Column("start_offset", sa.Text()),
        sa.Column("end_offset", sa.Text()),
        sa.Column("latest_offset", sa.Text()),
        sa.Column("num_input_rows", sa.BigInteger()),
        sa.Column("metrics", JSON),
        sa.ForeignKeyConstraint(["query"], ["lastgood_query.id"], name=op.f("lastgood_source_query_fkey")),
        sa.PrimaryKeyConstraint("query", "batch_id", "source_id", name=op.f("lastgood_source_key")),
    )


def _make_state() -> None:
    op.create_table(
        "lastgood_state",
        sa.Column("query", sa.Integer(), nullable=False),
        sa.Column("batch_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("operator_name", sa.Text()),
        sa.Column("num_rows_total", sa.BigInteger()),
        sa.Column("num_rows_updated", sa.BigInteger()),
        sa.Column("num_rows_removed", sa.BigInteger()),
        sa.Column("num_rows_dropped_by_watermark", sa.BigInteger()),
        sa.Column("memory_used_bytes", sa.BigInteger()),
        sa.Column("num_shuffle_partitions", sa.BigInteger()),
        sa.Column("num_state_store_instances", sa.BigInteger()),
        sa.Column("commit_time_ms", sa.BigInteger()),
        sa.Column("custom_metrics", JSON),
        sa.ForeignKeyConstraint(["query"], ["lastgood_query.id"], name=op.f("lastgood_state_query_fkey")),
        sa.PrimaryKeyConstraint("query", "batch_id", "position", name=op.f("lastgood_state_key")),
    )


def _make_topic() -> None:
    op.create_table(
        "lastgood_topic",
        sa.Column("query", sa.Integer(), nullable=False),
        sa.Column("topic", sa.Text(), nullable=False),
        sa.Column("topic_id", sa.Text(), nullable=False),
        sa.Column("first_seen_ms", sa.BigInteger()),
        sa.Column("last_seen_ms", sa.BigInteger()),
        sa.Column("first_batch_id", sa.BigInteger()),
        sa.Column("last_batch_id", sa.BigInteger()),
        sa.ForeignKeyConstraint(["query"], ["lastgood_query.id"], name=op.f("lastgood_topic_query_fkey")),
        sa.PrimaryKeyConstraint("query", "topic", "topic_id", name=op.f("lastgood_topic_key")),
    )
