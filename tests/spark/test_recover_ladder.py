"""`recover` before every start, as cron calls it, of a batch that always fails; every line is counted."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from schedulers import LASTGOOD, SCHEDULERS
from spark.supervised import Lines

from lastgood.lab.spark import find_default_spark, make_quick_conf, submit_command, submit_env
from lastgood.process.java import Java

pytestmark = pytest.mark.proof
APP = Path(__file__).with_name("heavy_app.py")
SCAN = SCHEDULERS / "cron/scan.sh"
AT_ONCE = 25
"""Lines; a file has ten."""
NAMED, ACCEPTED = 'sink = "file:{output}"', 'policy = {{ accept = ["duplicates"] }}'


class Cron:
    """A machine on which cron scans for one application."""

    def __init__(self, folder: Path, java: Java) -> None:
        self.lines = Lines(folder / "lines")
        self.folder = folder
        spark = find_default_spark()
        home = folder / "bin"
        home.mkdir()
        (home / "lastgood").symlink_to(LASTGOOD)
        env = submit_env(spark, java, {"PATH": f"{home}:/usr/local/bin:/usr/bin:/bin"})
        self._env = {**env, "PATH": f"{home}:{env['PATH']}", "XDG_STATE_HOME": str(folder / "state")}
        self._spark, self._conf = spark, make_quick_conf(spark, java)

    def configure(self, *words: str) -> None:
        """Write `lastgood.toml`."""
        told = "\n".join(words).format(output=self.lines.output)
        (self.folder / "lastgood.toml").write_text(
            f'[pipeline.orders]\ncommand = ["true"]\ncheckpoint = "{self.lines.checkpoint}"\n'
            f'driver_check = ["true"]\n{told}\n'
        )

    def scan(self, files: int) -> tuple[int, str]:
        """One scan: exit code, and what cron mails. The application takes so many files into a batch."""
        places = [str(each) for each in (self.lines.input, self.lines.checkpoint, self.lines.output)]
        submit = submit_command(APP, [*places, str(files), str(AT_ONCE)], environment=self._spark, conf=self._conf)
        done = subprocess.run(
            [SCAN, "orders", *submit], cwd=self.folder, env=self._env, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    @property
    def answer(self) -> str:
        """What `recover` said last."""
        return (self.folder / "state/lastgood/scan/orders/answer").read_text()

    @property
    def failures(self) -> int:
        kept = Path(f"{self.lines.checkpoint}.lastgood/attempts.json")
        return int(json.loads(kept.read_bytes())["failures"]) if kept.exists() else 0


@pytest.fixture
def cron(tmp_path: Path, java: Java) -> Cron:
    """A batch is committed, and the next is planned with more lines than the application can take."""
    cron = Cron(tmp_path, java)
    cron.configure(NAMED)
    cron.lines.put(2)
    assert cron.scan(files=4) == (0, "")
    cron.lines.put(4)
    code, mail = cron.scan(files=4)
    assert (code, "more than 25 lines at once" in mail) == (1, True)
    assert cron.lines.newest_plan.name == "1"
    return cron


def test_batch_that_always_fails_is_planned_anew_and_every_line_comes_once(cron: Cron) -> None:
    """The application takes fewer files now, and Spark runs the batch as it was planned before, again and again."""
    codes = [cron.scan(files=2)[0] for _ in range(3)]
    assert (codes, cron.failures) == ([1, 1, 1], 2)
    assert cron.scan(files=2)[0] == 0
    assert "replan" in cron.answer
    assert cron.lines.shown() == cron.lines.exactly
    cron.lines.put(3)
    assert cron.scan(files=2)[0] == 0
    assert (cron.lines.shown(), cron.failures) == (cron.lines.exactly, 0)


def test_person_is_called_where_planning_anew_does_not_help(cron: Cron) -> None:
    codes = [cron.scan(files=4)[0] for _ in range(8)]
    assert codes == [1] * 6 + [3, 3]
    assert "failed 6 times in a row without a new committed batch" in cron.answer
    looked = subprocess.run(
        [LASTGOOD, "recover", "orders", "--go-on"], cwd=cron.folder, env=cron._env, capture_output=True, check=False
    )
    assert looked.returncode == 0
    assert [cron.scan(files=2)[0] for _ in range(3)] == [1, 1, 0]
    assert cron.lines.shown() == cron.lines.exactly


def test_person_accepts_what_nobody_knows_where_no_sink_is_named(cron: Cron) -> None:
    cron.configure()
    codes = [cron.scan(files=2)[0] for _ in range(7)]
    assert codes == [1] * 6 + [3]
    assert "nobody has accepted duplicates" in cron.answer
    cron.configure(ACCEPTED)
    assert cron.scan(files=2)[0] == 0
    assert not cron.lines.exactly - cron.lines.shown()
    assert cron.lines.shown() == Counter(cron.lines.exactly)
