"""A process that stands by starts no query, whatever goes wrong in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lastgood.spark.agent import SITE_FOLDER
from lastgood.spark.agent.read_files import ReadFiles, identify_file
from lastgood.spark.agent.standby import OPEN

SECONDS = 30
WRITER = """
class DataStreamWriter:
    _spark = None
    _session = None
    def option(self, key, value): return self
    options = queryName = option
    def start(self, path=None): print("started", flush=True)
    toTable = start
"""
IN_SESSION = """
import os, time
from types import SimpleNamespace as Some
conf = os.environ["CONF"]
system = Some(getProperty=lambda name: conf if name == "java.class.path" else "/nowhere")
bean = Some(getStartTime=lambda: int(os.environ.get("BEGAN_MS", time.time() * 1000 + 1000)))
java = Some(lang=Some(System=system, management=Some(ManagementFactory=Some(getRuntimeMXBean=lambda: bean))))
context = Some(master=os.environ.get("MASTER", "local[2]"), getConf=lambda: {})
class DataStreamWriter:
    _spark = Some(_jvm=Some(java=java), sparkContext=context)
    def option(self, key, value): return self
    options = queryName = option
    def start(self, path=None): print("started", flush=True)
    toTable = start
"""
APP = """
from pyspark.sql.streaming.readwriter import DataStreamWriter
try:
    DataStreamWriter().start()
except BaseException:
    DataStreamWriter().start()
print("went on", flush=True)
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts an application that stands by, with a pyspark that stands for one that nobody knows."""

    def run(writer: str = WRITER, app: str = APP, **env: str) -> subprocess.Popen[str]:
        streaming = tmp_path / "lib" / "pyspark" / "sql" / "streaming"
        streaming.mkdir(parents=True)
        for each in (streaming, streaming.parent, streaming.parent.parent):
            (each / "__init__.py").write_text("")
        (streaming / "readwriter.py").write_text(writer)
        (tmp_path / "app.py").write_text(textwrap.dedent(app))
        (tmp_path / "standby-1").mkdir(exist_ok=True)
        told = {
            "PYTHONPATH": os.pathsep.join([str(SITE_FOLDER), str(tmp_path / "lib")]),
            "LASTGOOD_AGENT_DIR": str(tmp_path / "standby-1"),
            "PATH": os.environ["PATH"],
            "CONF": str(tmp_path / "conf"),
            **env,
        }
        return subprocess.Popen([sys.executable, tmp_path / "app.py"], env=told, stdout=subprocess.PIPE, text=True)

    return run


@pytest.mark.parametrize(
    "writer",
    [
        WRITER,  # its session has nothing that one has
        "class DataStreamWriter:\n    def start(self): print('started', flush=True)\n",  # it cannot be watched
    ],
)
def test_it_ends_where_it_cannot_be_held_back(run: Callable[..., Any], tmp_path: Path, writer: str) -> None:
    process = run(writer)
    told, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, told) == (70, "")
    (trouble,) = (tmp_path / "standby-1").glob("*.trouble.txt")
    assert "Traceback" in trouble.read_text()


def test_where_the_gate_is_open_it_is_a_driver_like_any_other(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "standby-1").mkdir()
    (tmp_path / "standby-1" / OPEN).touch()
    process = run(IN_SESSION)
    told, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, told) == (0, "started\nwent on\n")


def test_beside_executors_that_may_go_on_it_waits_a_while(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "standby-1").mkdir()
    (tmp_path / "standby-1" / OPEN).touch()
    app = f"from _lastgood_agent import standby\nstandby._APART_SECONDS = 1.0\n{APP}\nimport time\nprint(time.time())"
    told, _ = run(IN_SESSION, app, MASTER="spark://host:7077").communicate(timeout=SECONDS)
    *_, ended = told.splitlines()
    assert float(ended) >= (tmp_path / "standby-1" / OPEN).stat().st_mtime + 1.0


def test_what_has_changed_since_java_began_ends_it(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "standby-1").mkdir()
    (tmp_path / "standby-1" / OPEN).touch()
    (tmp_path / "conf").write_text("newer")
    process = run(IN_SESSION, BEGAN_MS=str(int(time.time() * 1000) - 60_000))
    told, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, told) == (70, "")
    (trouble,) = (tmp_path / "standby-1").glob("*.trouble.txt")
    assert f"{tmp_path / 'conf'} has changed since Java began" in trouble.read_text()


def test_what_has_changed_while_it_came_to_the_gate_ends_it(run: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "standby-1").mkdir()
    (tmp_path / "standby-1" / OPEN).touch()
    (tmp_path / "config").write_text("old")
    process = run(
        IN_SESSION,
        app=f"""
from pathlib import Path
from pyspark.sql.streaming.readwriter import DataStreamWriter
config = Path({str(tmp_path / "config")!r})
config.read_text()
config.write_text("newer")
DataStreamWriter().start()
""",
    )
    told, _ = process.communicate(timeout=SECONDS)
    assert (process.returncode, told) == (70, "")
    (trouble,) = (tmp_path / "standby-1").glob("*.trouble.txt")
    assert f"{tmp_path / 'config'} has changed" in trouble.read_text()


def test_a_worker_of_spark_is_not_held_back(run: Callable[..., Any]) -> None:
    process = run(PYTHON_WORKER_FACTORY_PORT="1")
    told, _ = process.communicate(timeout=SECONDS)
    assert told == "started\nwent on\n"


def test_what_is_read_is_known_as_it_was_then(tmp_path: Path) -> None:
    read, other = tmp_path / "config.yaml", tmp_path / "written.txt"
    read.write_text("a")
    found = ReadFiles()
    code = f"import sys; open({str(read)!r}).read(); open({str(other)!r}, 'w').write('x')"
    script = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parents[4] / "src")!r})
from lastgood.spark.agent.read_files import ReadFiles
found = ReadFiles()
sys.addaudithook(found)
exec({code!r})
print(json.dumps(found.list_kept()))
"""
    told = dict(json.loads(subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, check=True).stdout))
    assert tuple(told[str(read)]) == identify_file(str(read))
    assert str(other) not in told
    assert not any(path.startswith("/proc/") or path.endswith(".pyc") for path in told)
    read.write_text("b!")
    assert tuple(told[str(read)]) != identify_file(str(read))
    found.close()
    found("open", (str(read), "r", os.O_RDONLY))
    assert str(read) not in dict(found.list_kept())


def test_another_file_of_the_same_content_is_another_file(tmp_path: Path) -> None:
    file, draft = tmp_path / "file", tmp_path / "draft"
    file.write_text("same")
    before = identify_file(str(file))
    time.sleep(0.01)
    draft.write_text("same")
    draft.rename(file)
    assert identify_file(str(file)) != before
    assert identify_file(str(tmp_path / "none")) is None
