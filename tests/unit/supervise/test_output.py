from __future__ import annotations

import errno
import io
import os
import time
from pathlib import Path

from lastgood.supervise.output import LOG_BYTES, LOG_FILES, TAIL_BYTES, Output


def feed(out: Output, *chunks: bytes) -> None:
    for chunk in chunks:
        os.write(out.write_end, chunk)
    out.hand_over()
    out.finish()


def test_output_stands_in_the_log_and_its_end_in_memory(tmp_path: Path) -> None:
    out = Output(tmp_path / "logs" / "app.log")
    feed(out, b"one\n", b"two\n")
    assert out.tail() == "one\ntwo\n"
    assert out.log.read_bytes() == b"one\ntwo\n"


def test_a_later_run_appends(tmp_path: Path) -> None:
    for word in (b"first\n", b"second\n"):
        feed(Output(tmp_path / "app.log"), word)
    assert (tmp_path / "app.log").read_bytes() == b"first\nsecond\n"


def test_output_without_end_fills_neither_memory_nor_disk(tmp_path: Path) -> None:
    line = b"x" * 65535 + b"\n"
    out = Output(tmp_path / "app.log")
    feed(out, *[line] * (LOG_BYTES * (LOG_FILES + 2) // len(line) + 1))
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert len(out.tail()) == TAIL_BYTES
    assert len(sizes) == LOG_FILES
    assert max(sizes) < LOG_BYTES + len(line)


def test_a_log_that_cannot_be_written_is_told_once_and_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    troubles: list[OSError] = []
    out = Output(tmp_path / "file" / "app.log", on_trouble=troubles.append)
    feed(out, *[b"y" * 65536] * 200)
    assert len(troubles) == 1
    assert out.tail() == "y" * TAIL_BYTES


def test_a_disk_that_is_full_stops_nothing() -> None:
    troubles: list[OSError] = []
    out = Output(Path("/dev/full"), on_trouble=troubles.append)
    feed(out, b"hello\n")
    assert [trouble.errno for trouble in troubles] == [errno.ENOSPC]
    assert out.tail() == "hello\n"


def test_output_is_copied_to_who_looks(tmp_path: Path) -> None:
    shown = io.BytesIO()
    feed(Output(tmp_path / "app.log", copy_to=shown), b"a", b"b")
    assert shown.getvalue() == b"ab"


def test_a_looker_that_leaves_stops_nothing(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb", buffering=0) as gone:
        out = Output(tmp_path / "app.log", copy_to=gone)
        feed(out, b"a", b"b")
    assert out.log.read_bytes() == b"ab"


def test_bytes_that_are_no_text_do_no_harm(tmp_path: Path) -> None:
    out = Output(tmp_path / "app.log")
    feed(out, b"\xff\xfe ok")
    assert out.tail().endswith(" ok")


def test_output_goes_on_in_another_log_with_what_came_before(tmp_path: Path) -> None:
    shown = io.BytesIO()
    out = Output(tmp_path / "waiting.log")
    os.write(out.write_end, b"begun\n")
    while out.tail() != "begun\n":
        time.sleep(0.01)
    out.move(tmp_path / "app.log", shown, lambda _: None)
    feed(out, b"let go\n")
    assert (tmp_path / "waiting.log").read_text() == "begun\n"
    assert (tmp_path / "app.log").read_text() == "begun\nlet go\n"
    assert shown.getvalue() == b"let go\n"


def test_output_that_has_ended_is_moved_as_well(tmp_path: Path) -> None:
    out = Output(tmp_path / "waiting.log")
    feed(out, b"all\n")
    out.move(tmp_path / "app.log", None, lambda _: None)
    out.finish()
    assert (tmp_path / "app.log").read_text() == "all\n"
