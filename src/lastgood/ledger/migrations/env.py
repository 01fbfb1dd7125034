"""Alembic runs this for every migration; the connection comes from `lastgood.ledger.schema`."""

# ruff: noqa: INP001 - a folder of scripts, loaded by their path

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"], **context.config.attributes["options"])
with context.begin_transaction():
    context.run_migrations()
