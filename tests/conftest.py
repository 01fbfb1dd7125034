"""What every test relies on: the order of the large matrices, and an environment without surprises."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["plugin_services", "plugin_laboratory", "plugin_minutes", "plugin_printed"]

# Where a shell has started the tests in the background, it lets them ignore Ctrl-C, and so would all that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

SEED = int(os.environ.get("LASTGOOD_SEED", "1"))

# How long an example takes says nothing on a machine where real Sparks run beside it.
settings.register_profile("untimed", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


def pytest_collection_finish() -> None:
    """What is loaded by now stays; to look through it for garbage again and again takes a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def pytest_report_header() -> str:
    return f"lastgood: seed {SEED}, shard {os.environ.get('LASTGOOD_SHARD', '1/1')}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the shard of `LASTGOOD_SHARD=i/n`: every n-th cell of the matrices, so that shards take alike.

    What takes longest goes first, so that processes side by side end together.
    """
    part, parts = map(int, os.environ.get("LASTGOOD_SHARD", "1/1").split("/"))
    cells = [item for item in items if item.get_closest_marker("proof")]
    dropped = {id(item) for number, item in enumerate(cells) if number % parts != part - 1}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in dropped])
    items[:] = [item for item in items if id(item) not in dropped]
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)


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
