"""What `lastgood run` puts before PYTHONPATH, in real processes of every Python that this machine has."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from plugin_services import require_service
from pythons import find_python

from lastgood.spark.agent import SITE_FOLDER
from lastgood.spark.agent.driver import FOLDER_VARIABLE

AGENT_FOLDER = SITE_FOLDER.parent
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"
SUPPORTED = ["3.9", "3.10", "3.11", "3.12", "3.13"]
TOO_OLD = [version for version in ("2.7", "3.6", "3.8") if find_python(version)]

READWRITER = """
class Conf:
    def get(self, key, default):
        return default

class Session:
    conf = Conf()

class DataStreamWriter:
    def __init__(self): self._spark = Session()
    def option(self, key, value): return self
    def options(self, **options): return self
    def queryName(self, queryName): return self
    def start(self, path=None): return "query"
    def toTable(self, tableName): return "query"
"""


def python(version: str) -> Path:
    found = Path(sys.executable) if version == HERE else find_python(version)
    if found is None:
        require_service(f"no Python {version} on this machine")
    return found


def run(
    version: str, code: str, *path: Path, agent: Path | None = None, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run `code` with the agent's folder and `path` on PYTHONPATH."""
    variables = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, (SITE_FOLDER, *path))),
        **(env or {}),
    }
    if agent is not None:
        variables[FOLDER_VARIABLE] = str(agent)
    return subprocess.run([python(version), "-c", code], env=variables, capture_output=True, text=True, timeout=60)


@pytest.fixture
def fake_pyspark(tmp_path: Path) -> Path:
    """A folder with a `pyspark` that has no more than the class that starts queries."""
    package = tmp_path / "packages"
    folder = package / "pyspark" / "sql" / "streaming"
    folder.mkdir(parents=True)
    for each in (folder, folder.parent, folder.parent.parent):
        (each / "__init__.py").touch()
    (folder / "readwriter.py").write_text(READWRITER)
    return package


def agent_files() -> list[Path]:
    return sorted(AGENT_FOLDER.glob("*.py"))


@pytest.mark.parametrize("file", agent_files(), ids=lambda file: file.name)
def test_agent_is_python_3_9_and_needs_nothing_but_the_standard_library_and_pyspark(file: Path) -> None:
    tree = ast.parse(file.read_text(), feature_version=(3, 9))
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        for name in (
            [each.name for each in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and node.level == 0
            else []
        )
    }
    assert imported <= {*sys.stdlib_module_names, "pyspark", "py4j"}
    assert "annotations" in {each.name for node in tree.body if isinstance(node, ast.ImportFrom) for each in node.names}


CHECK = """
import json, sys
from pyspark.sql.streaming import readwriter
writer = readwriter.DataStreamWriter
print(json.dumps({
    "watched": hasattr(writer.start, "__wrapped__"),
    "loader": type(readwriter.__spec__.loader).__name__,
    "started": writer().start(),
    "agent": sorted(name for name in sys.modules if name.startswith("_lastgood_agent")),
    "path": [entry for entry in sys.path if "lastgood" in entry],
}))
"""


@pytest.mark.parametrize("version", SUPPORTED)
@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
def test_starts_are_watched_in_every_python(version: str, zipped: bool, fake_pyspark: Path, tmp_path: Path) -> None:
    """spark-submit brings pyspark as a zip file, which Python 3.9 loads in an old way."""
    packages = fake_pyspark
    if zipped:
        packages = tmp_path / "pyspark.zip"
        with zipfile.ZipFile(packages, "w") as archive:
            for file in sorted(fake_pyspark.rglob("*.py")):
                archive.write(file, file.relative_to(fake_pyspark))
    code = CHECK.replace('"started": writer().start()', '"started": None')
    done = run(version, code, packages, agent=tmp_path / "agent")
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["watched"]
    assert told["loader"] in {"SourceFileLoader", "zipimporter"}
    assert told["path"] == []
    assert "_lastgood_agent.agent" not in told["agent"]
    assert not (tmp_path / "agent").exists()


def test_query_starts_whatever_the_agent_trips_over(fake_pyspark: Path, tmp_path: Path) -> None:
    """The session of this pyspark has no Java behind it, so that listening to it fails."""
    agent = tmp_path / "agent"
    agent.mkdir()
    done = run(HERE, CHECK, fake_pyspark, agent=agent)
    assert (done.stderr, json.loads(done.stdout)["started"]) == ("", "query")
    (beat,) = agent.glob("*.driver.json")
    assert "_jvm" in json.loads(beat.read_text())["trouble"]


def test_pyspark_that_the_agent_does_not_know_is_left_alone_and_leaves_a_note(
    fake_pyspark: Path, tmp_path: Path
) -> None:
    agent = tmp_path / "agent"
    agent.mkdir()
    (fake_pyspark / "pyspark" / "sql" / "streaming" / "readwriter.py").write_text("class DataStreamWriter: pass")
    done = run(HERE, "import pyspark.sql.streaming.readwriter; print('on')", fake_pyspark, agent=agent)
    assert (done.stdout, done.stderr) == ("on\n", "")
    (note,) = agent.glob("*.trouble.txt")
    assert "AttributeError" in note.read_text()


@pytest.mark.parametrize("version", [*TOO_OLD, *SUPPORTED])
def test_next_sitecustomize_runs_and_is_the_one_that_is_found(version: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.theirs = __file__")
    code = "import sys, sitecustomize; print(sys.theirs == sitecustomize.__file__)"
    done = run(version, code, tmp_path, agent=tmp_path)
    assert (done.stdout, done.stderr) == ("True\n", "")


@pytest.mark.parametrize("version", [*TOO_OLD, *SUPPORTED])
def test_process_without_pyspark_notices_nothing(version: str, tmp_path: Path) -> None:
    code = "import sys; print([name for name in sys.modules if 'lastgood' in name or name.startswith('importlib.')])"
    bare = subprocess.run(
        [python(version), "-c", code], env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, timeout=60
    )
    done = run(version, code, agent=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == (bare.stdout, bare.stderr, 0)


@pytest.mark.parametrize("broken", ["raise ValueError('theirs')", "import no_such_module"])
def test_what_the_next_sitecustomize_raises_is_told_as_without_us(broken: str, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(broken)
    alone = subprocess.run(
        [sys.executable, "-c", "print('on')"],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    done = run(HERE, "print('on')", tmp_path, agent=tmp_path)
    assert (done.stdout, done.stderr) == (alone.stdout, alone.stderr)
    assert "Error" in done.stderr


@pytest.mark.parametrize(
    "env", [{}, {"PYTHON_WORKER_FACTORY_SECRET": "x"}, {"PYTHON_WORKER_FACTORY_SOCK_DIR": "/x"}], ids=str
)
def test_workers_and_processes_without_a_folder_get_no_agent(env: dict[str, str], tmp_path: Path) -> None:
    done = run(HERE, "import sys; print(len(sys.meta_path))", agent=tmp_path if env else None, env=env)
    bare = run(HERE, "import sys; print(len(sys.meta_path))")
    assert done.stdout == bare.stdout


def test_another_tracer_that_asks_the_whole_path_again_does_no_harm(fake_pyspark: Path, tmp_path: Path) -> None:
    tracer = tmp_path / "tracer"
    tracer.mkdir()
    (tracer / "sitecustomize.py").write_text("""
import importlib.util, sys
class Tracer:
    busy = False
    def find_spec(self, name, path=None, target=None):
        if self.busy:
            return None
        self.busy = True
        try:
            return importlib.util.find_spec(name)
        finally:
            self.busy = False
sys.meta_path.insert(0, Tracer())
""")
    done = run(HERE, CHECK, tracer, fake_pyspark, agent=tmp_path / "agent")
    assert done.stderr == ""
    assert json.loads(done.stdout)["watched"]
