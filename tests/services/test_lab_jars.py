"""Real downloads by the real Ivy, from a repository in a folder: the network is in nobody's way."""

from __future__ import annotations

import hashlib
import http.server
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from lastgood.errors import StorageError
from lastgood.lab.jars import Jar, JarsUnavailableError, fetch_jars, list_jars
from lastgood.process.java import Java

pytestmark = pytest.mark.services

SPARK_JARS = [jar for jar in list_jars() if jar.jar_set == "spark"]
CLIENTS = next(jar for jar in SPARK_JARS if jar.name == "kafka-clients")
NO_JAVA = Java(Path("/there/is/no/java"), 17)
DEADLINE_SECONDS = 60


def place(repository: Path, jar: Jar) -> Path:
    """Where a repository in Maven's layout has this jar."""
    folder = repository / jar.organisation.replace(".", "/") / jar.name / jar.revision
    return folder / f"{jar.name}-{jar.revision}.jar"


@pytest.fixture
def repository(spark_jars: tuple[Path, ...], tmp_path: Path) -> Path:
    """A repository with the real files of the set `spark`."""
    for jar, file in zip(SPARK_JARS, spark_jars, strict=True):
        target = place(tmp_path / "repository", jar)
        target.parent.mkdir(parents=True)
        target.symlink_to(file)
    return tmp_path / "repository"


def files(cache: Path) -> set[str]:
    """Everything in the cache that could be taken for a jar."""
    return {str(file.relative_to(cache / "jvm")) for file in cache.rglob("*.jar*")}


def test_missing_jars_are_downloaded_and_verified(repository: Path, java: Java, tmp_path: Path) -> None:
    cache, told = tmp_path / "cache", []
    jars = fetch_jars(["spark"], java=java, cache=cache, repository=repository.as_uri(), progress=told.append)
    assert [hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars["spark"]] == [jar.sha256 for jar in SPARK_JARS]
    assert files(cache) == {jar.path for jar in SPARK_JARS}
    assert told


def test_second_call_starts_no_java(repository: Path, java: Java, tmp_path: Path) -> None:
    cache, told = tmp_path / "cache", []
    first = fetch_jars(["spark"], java=java, cache=cache, repository=repository.as_uri())
    assert fetch_jars(["spark"], java=NO_JAVA, cache=cache, progress=told.append) == first
    assert told == []


def test_cache_of_the_environment_is_used(
    repository: Path,
    java: Java,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LASTGOOD_CACHE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", repository.as_uri())
    jars = fetch_jars(["spark"], java=java)
    assert all(jar.is_relative_to(tmp_path / "elsewhere" / "jvm") for jar in jars["spark"])


def test_only_what_is_missing_is_downloaded(repository: Path, java: Java, tmp_path: Path) -> None:
    cache, told = tmp_path / "cache", []
    jars = fetch_jars(["spark"], java=java, cache=cache, repository=repository.as_uri())
    jars["spark"][2].unlink()
    fetch_jars(["spark"], java=java, cache=cache, repository=repository.as_uri(), progress=told.append)
    assert jars["spark"][2].is_file()
    assert all(line.endswith("of 1") for line in told)


def test_artifact_that_is_not_there_is_named(repository: Path, java: Java, tmp_path: Path) -> None:
    place(repository, CLIENTS).unlink()
    with pytest.raises(JarsUnavailableError) as raised:
        fetch_jars(["spark"], java=java, cache=tmp_path / "cache", repository=repository.as_uri())
    assert (raised.value.found or "").startswith(f"{CLIENTS.module_id}: ")
    assert Path(raised.value.subject or "").is_file()
    assert files(tmp_path / "cache") == set()


def test_repository_that_does_not_answer_is_an_error_to_try_again(java: Java, tmp_path: Path) -> None:
    with pytest.raises(JarsUnavailableError) as raised:
        fetch_jars(["spark"], java=java, cache=tmp_path, repository="http://127.0.0.1:1/")
    assert f"{len(SPARK_JARS)} artifacts" in (raised.value.expected or "")
    assert "run the same command again" in (raised.value.next or "")


def test_downloaded_file_with_another_digest_is_refused(repository: Path, java: Java, tmp_path: Path) -> None:
    wrong = place(repository, CLIENTS)
    wrong.unlink()
    wrong.write_bytes(b"not a jar")
    with pytest.raises(JarsUnavailableError) as raised:
        fetch_jars(["spark"], java=java, cache=tmp_path / "cache", repository=repository.as_uri())
    assert CLIENTS.module_id in str(raised.value)
    assert raised.value.found == f"sha256 {hashlib.sha256(b'not a jar').hexdigest()}"
    assert raised.value.expected == f"sha256 {CLIENTS.sha256}"
    assert files(tmp_path / "cache") == set()


def test_damaged_file_of_the_cache_is_named_removed_and_replaced(
    repository: Path,
    java: Java,
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    fetch_jars(["spark"], java=java, cache=cache, repository=repository.as_uri())
    damaged = cache / "jvm" / CLIENTS.path
    damaged.write_bytes(b"half")
    with pytest.raises(JarsUnavailableError) as raised:
        fetch_jars(["spark"], java=java, cache=cache)
    assert raised.value.subject == str(damaged)
    assert not damaged.exists()
    fetch_jars(["spark"], java=java, cache=cache, repository=repository.as_uri())
    assert hashlib.sha256(damaged.read_bytes()).hexdigest() == CLIENTS.sha256


def test_lost_stamps_cost_a_look_at_the_files_and_no_download(
    repository: Path,
    java: Java,
    tmp_path: Path,
) -> None:
    first = fetch_jars(["spark"], java=java, cache=tmp_path / "cache", repository=repository.as_uri())
    (tmp_path / "cache" / "jvm" / "verified.json").write_text("{ half")
    assert fetch_jars(["spark"], java=NO_JAVA, cache=tmp_path / "cache") == first


def test_cache_that_cannot_be_written_is_named(java: Java, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(StorageError):
        fetch_jars(["spark"], java=java, cache=tmp_path / "cache")


FETCH = """
import os, sys
from pathlib import Path
from lastgood.lab.jars import fetch_jars
from lastgood.process.java import find_java
cache, repository = sys.argv[1:]
java = find_java(os.environ)
tell = lambda text: print(text, flush=True)
fetch_jars(["spark"], java=java, cache=Path(cache), repository=repository, progress=tell)
print("done")
"""


def fetching(cache: Path, repository: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", FETCH, str(cache), repository]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_processes_that_fetch_at_once_download_once(repository: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    processes = [fetching(cache, repository.as_uri()) for _ in range(4)]
    told = [process.communicate(timeout=DEADLINE_SECONDS)[0] for process in processes]
    assert [lines.splitlines()[-1] for lines in told] == ["done"] * 4
    assert sum("downloading" in lines for lines in told) == 1
    assert files(cache) == {jar.path for jar in SPARK_JARS}


class HalfRepository(http.server.SimpleHTTPRequestHandler):
    """Says of every file that it has it, sends its beginning, and then nothing more."""

    asked = threading.Event()
    released = threading.Event()

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000000")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(b"x" * 1000)
        self.wfile.flush()
        self.asked.set()
        self.released.wait(DEADLINE_SECONDS)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def half_repository() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), HalfRepository) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        HalfRepository.released.set()
        server.shutdown()
        thread.join()


def test_download_whose_owner_is_killed_leaves_no_process_and_nothing_like_a_jar(
    half_repository: str,
    repository: Path,
    java: Java,
    tmp_path: Path,
) -> None:
    cache = tmp_path / "cache"
    with fetching(cache, half_repository) as owner:
        assert HalfRepository.asked.wait(DEADLINE_SECONDS)
        started = psutil.Process(owner.pid).children(recursive=True)
        assert any(process.name() == "java" for process in started)
        owner.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(started, timeout=DEADLINE_SECONDS)
    assert alive == []
    assert not any((cache / "jvm" / jar.path).exists() for jar in SPARK_JARS)
    fetch_jars(["spark"], java=java, cache=cache, repository=repository.as_uri())
    assert files(cache) == {jar.path for jar in SPARK_JARS}
    assert not list((cache / "jvm").glob("fetch-*"))


def test_what_a_killed_download_left_is_swept_by_the_next(repository: Path, java: Java, tmp_path: Path) -> None:
    abandoned = tmp_path / "cache" / "jvm" / "fetch-abandoned" / "cache"
    abandoned.mkdir(parents=True)
    (abandoned / "half.jar").write_bytes(b"half")
    fetch_jars(["spark"], java=java, cache=tmp_path / "cache", repository=repository.as_uri())
    assert files(tmp_path / "cache") == {jar.path for jar in SPARK_JARS}
