"""A class archive that is made beside a driver: real processes stand for Java, which write what they are told to."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from lastgood.process.driver import Interpreter, Launch
from lastgood.process.java import Java
from lastgood.supervise import class_archives
from lastgood.supervise.class_archives import ClassArchives
from lastgood.supervise.driver_java import MAIN
from lastgood.supervise.events import Event, Noticed

SECONDS = 20
WRITES = """
echo "$@" >> "${0%/*}/called"
env >> "${0%/*}/environment"
for word; do
  case "$word" in -XX:ArchiveClassesAtExit=*) echo classes > "${word#*=}" ;; esac
done
"""


@dataclass
class Driver:
    """As psutil tells of the Java of a driver."""

    java: Path
    class_path: str
    pid: int = 0
    options: tuple[str, ...] = ("-Xmx1g", "-Dsome.secret=1")

    def name(self) -> str:
        return "java"

    def cmdline(self) -> list[str]:
        return [str(self.java), "-cp", self.class_path, *self.options, MAIN, "--name", "orders", "pyspark-shell"]

    def environ(self) -> dict[str, str]:
        return {"SPARK_HOME": str(self.java.parent), "AWS_SECRET_ACCESS_KEY": "secret"}


class Kept:
    """The archives of one command, and what is told of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.events: list[Event] = []
        self.java = folder / "java"
        self.act(WRITES)
        (folder / "conf").mkdir()
        self.jar = folder / "spark.jar"
        self.jar.write_text("classes")
        self.driver = Driver(self.java, f"{folder}/conf{os.pathsep}{folder}/*")
        self.archives = self.start()

    def act(self, script: str) -> None:
        """What Java does from now on."""
        self.java.write_text(f"#!/bin/sh\n{script}")
        self.java.chmod(0o755)
        os.utime(self.java, (1, 1))

    def start(self, version: int = 17) -> ClassArchives:
        """`run` begins."""
        python, java = Interpreter(Path("/python"), (3, 11), "4.2.0"), Java(self.folder, version)
        launch = Launch(("python", "orders.py"), {"PATH": os.environ["PATH"], "PASSWORD": "secret"}, python, java)
        archives = ClassArchives(launch, name="orders", tell=self.events.append, folder=self.folder / "cache")
        archives.begin({})
        return archives

    def look(self) -> None:
        self.archives.look([self.driver])  # type: ignore[list-item]  # all of it that is asked

    def wait(self, condition: str) -> None:
        """Look until something is told."""
        deadline = time.monotonic() + SECONDS
        while condition not in self.noticed:
            assert time.monotonic() < deadline, self.events
            self.look()
            time.sleep(0.01)

    @property
    def noticed(self) -> list[str]:
        return [each.condition for each in self.events if isinstance(each, Noticed)]

    @property
    def made(self) -> list[Path]:
        return sorted((self.folder / "cache").glob("run-*/driver.jsa"))


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    made = Kept(tmp_path)
    yield made
    made.archives.close()


def test_options_of_which_an_archive_depends_are_told_to_the_job_whole(kept: Kept) -> None:
    kept.driver.options = ("-Xmx1g", "--add-opens", "java.base/java.lang=ALL-UNNAMED", "-Dsome.secret=1")
    kept.wait("CLASS_ARCHIVE_MADE")
    told = (kept.folder / "called").read_text()
    assert "-Xmx1g --add-opens=java.base/java.lang=ALL-UNNAMED -XX:TieredStopAtLevel" in told
    assert "secret" not in told


def test_it_is_made_once_and_named_to_the_next_start(kept: Kept) -> None:
    assert kept.archives.begin({"A": "b"}) == {"A": "b"}
    kept.wait("CLASS_ARCHIVE_MADE")
    (archive,) = kept.made
    env = kept.archives.begin({"SPARK_SUBMIT_OPTS": "-Dmine=1"})
    assert env["SPARK_SUBMIT_OPTS"] == f"-Xlog:cds*=off -XX:SharedArchiveFile={archive} -Dmine=1"
    assert env["SPARK_LAUNCHER_OPTS"] == f"-Xlog:cds*=off -XX:SharedArchiveFile={archive.with_name('launcher.jsa')}"
    assert kept.archives.complete({}) == {
        **env,
        "SPARK_SUBMIT_OPTS": env["SPARK_SUBMIT_OPTS"].removesuffix(" -Dmine=1"),
    }
    kept.look()
    assert kept.noticed == ["CLASS_ARCHIVE_MADE"]
    assert {each.name for each in archive.parent.iterdir()} == {"driver.jsa", "launcher.jsa", "log"}
    assert not list((kept.folder / "cache").glob("draft-*"))


def test_it_is_made_as_the_driver_was_started_and_of_nothing_else(kept: Kept) -> None:
    kept.wait("CLASS_ARCHIVE_MADE")
    of_driver, of_launcher = (kept.folder / "called").read_text().splitlines()
    assert f"-cp {kept.driver.class_path} {MAIN} " in of_driver
    assert of_driver.startswith("-Xmx1g ")
    assert f"-cp {kept.folder}/jars/* org.apache.spark.launcher.Main {MAIN}" in of_launcher
    assert "secret" not in of_driver + (kept.folder / "environment").read_text()


def test_another_run_of_the_same_command_knows_it(kept: Kept) -> None:
    kept.wait("CLASS_ARCHIVE_MADE")
    assert kept.start().is_in_use
    (kept.folder / "cache").rename(kept.folder / "gone")
    assert not kept.start().is_in_use


@pytest.mark.parametrize("change", ["java", "spark.jar"])
def test_a_changed_one_is_made_anew(kept: Kept, change: str) -> None:
    kept.wait("CLASS_ARCHIVE_MADE")
    os.utime(kept.folder / change, (2, 2))
    assert kept.archives.begin({}) == {}
    kept.events.clear()
    kept.wait("CLASS_ARCHIVE_MADE")
    assert len(kept.made) == 2
    assert kept.archives.begin({})


def test_a_jar_that_came_makes_another(kept: Kept) -> None:
    kept.wait("CLASS_ARCHIVE_MADE")
    (kept.folder / "more.JAR").write_text("classes")
    assert kept.archives.begin({}) == {}


def test_files_beside_the_jars_mean_that_there_is_none(kept: Kept) -> None:
    (kept.folder / "conf/spark-defaults.conf").write_text("")
    kept.wait("CLASS_ARCHIVE_IMPOSSIBLE")
    kept.look()
    assert kept.noticed == ["CLASS_ARCHIVE_IMPOSSIBLE"]
    assert str(kept.folder / "conf") in kept.events[0].to_json()["sentence"]
    assert not kept.made


@pytest.mark.parametrize(("version", "condition"), [(17, "MADE"), (21, "IMPOSSIBLE"), (25, "MADE")])
def test_not_every_java_takes_one_where_a_jar_is_twice_on_the_class_path(
    version: int, condition: str, kept: Kept
) -> None:
    kept.archives = kept.start(version)
    kept.driver.class_path = f"{kept.jar}{os.pathsep}{kept.driver.class_path}"
    kept.wait(f"CLASS_ARCHIVE_{condition}")
    assert kept.noticed == [f"CLASS_ARCHIVE_{condition}"]


@pytest.mark.parametrize(
    "option",
    ["-Xshare:off", "-Xshare:on", "-XX:SharedArchiveFile=/mine.jsa", "-XX:AOTCache=/a", "-javaagent:/otel.jar"],
)
def test_what_java_is_told_by_others_counts(kept: Kept, option: str) -> None:
    kept.driver.options = (option,)
    kept.wait("CLASS_ARCHIVE_IMPOSSIBLE")
    sentence = kept.events[0].to_json()["sentence"]
    assert option.partition("=")[0] in sentence
    assert "mine" not in sentence


def test_what_java_is_told_by_a_variable_counts(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {**kept.driver.environ(), "JAVA_TOOL_OPTIONS": "-Dany=1 -javaagent:/otel.jar"}
    monkeypatch.setattr(kept.driver, "environ", lambda: told)
    kept.wait("CLASS_ARCHIVE_IMPOSSIBLE")


def test_one_that_was_started_otherwise_gets_another(kept: Kept) -> None:
    """By new settings of Spark: the one that it was told of stays for those whom it fits."""
    kept.wait("CLASS_ARCHIVE_MADE")
    kept.archives.begin({})
    kept.driver.pid = os.getpid()
    kept.driver.options = ("-Xmx2g", f"-XX:SharedArchiveFile={kept.made[0]}")
    assert not kept.archives.confirm([kept.driver])  # type: ignore[list-item]  # all of it that is asked
    kept.events.clear()
    kept.wait("CLASS_ARCHIVE_MADE")
    assert len(kept.made) == 2


def test_it_is_known_by_the_name_that_the_kernel_has_for_it(kept: Kept) -> None:
    (kept.folder / "real").mkdir()
    (kept.folder / "cache").symlink_to(kept.folder / "real")
    kept.archives = kept.start()
    kept.wait("CLASS_ARCHIVE_MADE")
    assert str(kept.folder / "real") in kept.archives.begin({})["SPARK_SUBMIT_OPTS"]


@pytest.mark.parametrize("script", ["exit 1", "exit 0", "kill -9 $$"])
def test_a_job_that_fails_is_told_and_tried_again_later(
    kept: Kept, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept.act(f"echo what is wrong\n{script}")
    kept.wait("CLASS_ARCHIVE_NOT_MADE")
    assert (kept.folder / "cache/log").read_text().startswith("what is wrong")
    kept.look()
    assert kept.noticed == ["CLASS_ARCHIVE_NOT_MADE"]
    assert kept.archives.begin({}) == {}
    assert not list((kept.folder / "cache").glob("*-*"))
    monkeypatch.setattr(kept.archives, "_not_before", 0.0)
    kept.act(WRITES)
    kept.wait("CLASS_ARCHIVE_MADE")


def test_one_that_takes_too_long_is_ended(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archives, "_JOB_SECONDS", 0.2)
    kept.act('echo $$ > "${0%/*}/pid"\nexec sleep 60')
    kept.wait("CLASS_ARCHIVE_NOT_MADE")
    assert not psutil.pid_exists(int((kept.folder / "pid").read_text()))


def await_begun(kept: Kept) -> int:
    kept.act('echo $$ > "${0%/*}/draft" && mv "${0%/*}/draft" "${0%/*}/pid"\nexec sleep 60')
    deadline = time.monotonic() + SECONDS
    while not (kept.folder / "pid").exists():
        assert time.monotonic() < deadline
        kept.look()
        time.sleep(0.01)
    return int((kept.folder / "pid").read_text())


def test_it_gives_way_to_a_start(kept: Kept) -> None:
    pid = await_begun(kept)
    kept.archives.give_way(has_moved=True)
    assert not psutil.pid_exists(pid)
    kept.look()  # and not at once again
    assert not list((kept.folder / "cache").glob("draft-*"))
    assert kept.noticed == []


def test_it_ends_with_run(kept: Kept) -> None:
    pid = await_begun(kept)
    kept.archives.close()
    assert not psutil.pid_exists(pid)
    assert not list((kept.folder / "cache").glob("draft-*"))


def test_after_a_run_without_a_batch_one_start_does_without_it(kept: Kept) -> None:
    kept.wait("CLASS_ARCHIVE_MADE")
    assert kept.archives.begin({})
    kept.archives.give_way(has_moved=False)
    assert kept.archives.begin({}) == {}
    kept.archives.give_way(has_moved=False)
    assert kept.archives.begin({})
    kept.archives.give_way(has_moved=True)
    assert kept.archives.begin({})


def test_whether_java_has_taken_it_is_seen(kept: Kept) -> None:
    kept.wait("CLASS_ARCHIVE_MADE")
    kept.driver.pid = os.getpid()
    kept.archives.begin({})
    with kept.made[0].open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ):
        assert kept.archives.confirm([kept.driver])  # type: ignore[list-item]  # all of it that is asked
    assert kept.archives.is_in_use
    assert not kept.archives.confirm([kept.driver])  # type: ignore[list-item]  # all of it that is asked
    assert kept.noticed[1:] == ["CLASS_ARCHIVE_NOT_USED"]
    assert not kept.archives.is_in_use
    kept.look()
    assert kept.archives.begin({}) == {}
    assert not kept.made
    kept.events.clear()
    kept.archives = kept.start()
    kept.wait("CLASS_ARCHIVE_MADE")


@pytest.mark.parametrize("noted", ["", "[]", "{}", '{"program": 1}', "[" * 100_000])
def test_what_was_not_noted_by_us_is_not_there(kept: Kept, noted: str) -> None:
    kept.wait("CLASS_ARCHIVE_MADE")
    (note,) = (kept.folder / "cache").glob("run-*.json")
    note.write_text(noted)
    assert kept.archives.begin({}) == {}
    kept.events.clear()
    kept.look()
    assert kept.archives.begin({})  # it was noted again, and made before
    assert "made before" in kept.events[0].to_json()["sentence"]


def test_only_so_many_are_kept_and_drafts_of_the_dead_go(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archives, "KEPT", 2)
    cache = kept.folder / "cache"
    for number, name in enumerate(("run-old", "run-older", f"draft-{2**22 + 1}-x", f"draft-{os.getpid()}-y")):
        (cache / name).mkdir(parents=True)
        os.utime(cache / name, (100 - number, 100 - number))
    kept.wait("CLASS_ARCHIVE_MADE")
    left = {each.name for each in cache.iterdir() if each.is_dir()} - {kept.made[0].parent.name}
    assert left == {"run-old", f"draft-{os.getpid()}-y"}


def test_a_driver_that_ends_just_now_is_nothing_to_tell(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    def end() -> dict[str, str]:
        raise psutil.NoSuchProcess(1)

    monkeypatch.setattr(kept.driver, "environ", end)
    kept.look()
    assert kept.noticed == []
    monkeypatch.undo()
    kept.wait("CLASS_ARCHIVE_MADE")


def test_where_there_are_two_drivers_nobody_knows_which(kept: Kept) -> None:
    kept.archives.look([kept.driver, kept.driver])  # type: ignore[list-item]  # all of it that is asked
    assert not (kept.folder / "cache").exists()
