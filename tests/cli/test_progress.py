from __future__ import annotations

import io
import sys

import pytest

from lastgood.cli.progress import show_batches_read, show_stages


def test_nothing_is_told_where_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with show_batches_read() as progress:
        assert progress is None
    with show_stages() as tell:
        tell("starting Spark")
    assert sys.stderr.getvalue() == ""


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    with show_batches_read() as progress:
        assert progress is not None
        progress(500, 100_000)
    assert "500 of 100,000 batches read" in sys.stderr.getvalue()
    with show_stages() as tell:
        tell("starting Spark 4.2.0 on the copy")
    assert "starting Spark 4.2.0 on the copy" in sys.stderr.getvalue()
