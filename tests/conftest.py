"""What every test relies on: the order of the files, and an environment without surprises."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["plugin_services", "plugin_laboratory", "plugin_minutes", "plugin_printed"]

# Where a shell has started the tests in the background, it lets them ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

SHARED = Path(__file__).resolve().parents[2] / "shared"
SEED = int(os.environ.get("LASTGOOD_SEED", "1"))
_WAITING_PART = 0.8
"""Of a run, the part over which the files are spread that wait for a Spark or a service."""

# How long an example takes says nothing on a machine where real Sparks run beside it.
settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_report_header() -> str:
    return f"lastgood: seed {SEED}, shard {os.environ.get('LASTGOOD_SHARD', '1/1')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the shard of `LASTGOOD_SHARD=i/n`: every n-th cell of the matrices, so that shards take alike.

    Files are mixed, so that no core stands idle (`_mix_files`).
    """
    part, parts = map(int, os.environ.get("LASTGOOD_SHARD", "1/1").split("/"))
    cells = [item for item in items if item.get_closest_marker("proof")]
    dropped = {id(item) for number, item in enumerate(cells) if number % parts != part - 1}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in dropped])
    items[:] = [item for item in items if id(item) not in dropped]
    items[:] = _mix_files(items)


def _mix_files(items: list[pytest.Item]) -> list[pytest.Item]:
    """The files that wait for a Spark or a service, spread among those that only compute; each stays whole.

    The last fifth only computes: such files are short, so that processes side by side end together.
    """
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    with_spark, with_service, computing = [], [], []
    for tests in files.values():
        if any(each.get_closest_marker("spark") for each in tests):
            with_spark.append(tests)
        elif any(each.get_closest_marker("services") for each in tests):
            with_service.append(tests)
        else:
            computing.append(tests)
    waiting = [*with_spark, *with_service]
    placed = [(_WAITING_PART * n / len(waiting), tests) for n, tests in enumerate(waiting)]
    placed += [(n / len(computing), tests) for n, tests in enumerate(computing)]
    placed.sort(key=lambda pair: pair[0])
    return [item for _, tests in placed for item in tests]


@pytest.fixture(scope="session")
def _nobodys_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _no_product_environment(monkeypatch: pytest.MonkeyPatch, _nobodys_home: Path) -> None:
    """Settings, keys and notes of the person who runs the tests must not reach what is tested."""
    for name in ("CONFIG", "STATE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(_nobodys_home / name.lower()))
    for name in list(os.environ):
        spark = name.startswith(("SPARK_", "PYSPARK_"))
        ours = name.startswith("LASTGOOD_") and name not in {"LASTGOOD_CACHE", "LASTGOOD_FUZZ_EXAMPLES"}
        if spark or ours:
            monkeypatch.delenv(name)
