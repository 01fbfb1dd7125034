"""A ledger in SQLite that several processes write."""

from __future__ import annotations

from pathlib import Path

import pytest
from ledgers import LedgerClaims

from lastgood.ledger.url import LedgerPlace, parse_place


@pytest.fixture
def place(tmp_path: Path) -> LedgerPlace:
    return parse_place(str(tmp_path / "ledger.db"))


class TestSqlite:
    """Of all that is true of any ledger what takes several processes."""

    test_processes_that_open_and_write_at_once_lose_nothing = (
        LedgerClaims.test_processes_that_open_and_write_at_once_lose_nothing
    )
