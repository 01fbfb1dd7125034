"""What may change of the way a state is kept while it is made anew: which confs, and to what. Pure.

Spark writes some confs into every plan of a batch, and goes by those of the newest one at each start, whatever the
application sets. They tell how many partitions the state has and how its files are read, so that nobody may change
them under a state that is there. Under one without a row those may change that tell how it is kept; never those that
tell what is counted, such as `spark.sql.streaming.multipleWatermarkPolicy`. Proven with real Spark in
`tests/repair/test_recompute.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from lastgood.checkpoint.empty_state import EMPTY_SNAPSHOTS
from lastgood.checkpoint.offsets import SHUFFLE_PARTITIONS, STATE_STORE_CODEC, STATE_STORE_PROVIDER, OffsetEntry
from lastgood.checkpoint.partitions import PARTITIONS_MAX
from lastgood.errors import UsageError

CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
"""No plan pins it."""
_AGGREGATION_FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
HDFS_BACKED: Final = f"{_PACKAGE}.HDFSBackedStateStoreProvider"
ROCKSDB: Final = f"{_PACKAGE}.RocksDBStateStoreProvider"
STATE_STORES: Final = MappingProxyType({"rocksdb": ROCKSDB, "hdfs": HDFS_BACKED})
"""As a person says it, and as the log has it."""
_COUNT = re.compile(r"[1-9]\d{0,8}", re.ASCII)
_SWITCHES = {True: "true", False: "false"}
_ALLOWED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        SHUFFLE_PARTITIONS: (),
        STATE_STORE_PROVIDER: tuple(STATE_STORES.values()),
        CHANGELOG: tuple(_SWITCHES.values()),
        STATE_STORE_CODEC: tuple(EMPTY_SNAPSHOTS),
        _AGGREGATION_FORMAT: ("1", "2"),
    }
)
"""The values of each conf that may change; none: a number of partitions."""
_SAID_FIRST = (SHUFFLE_PARTITIONS, STATE_STORE_PROVIDER)
"""What is pinned by every Spark, so that it can be said where a plan does not."""


def make_conf(
    shuffle_partitions: int | None = None,
    state_store: str | None = None,
    *,
    changelog: bool | None = None,
    others: Iterable[tuple[str, str]] = (),
) -> Mapping[str, str]:
    """The confs that a person wants, by their names.

    Args:
        shuffle_partitions: Over how many partitions the state is spread.
        state_store: One of `STATE_STORES`.
        changelog: Whether RocksDB writes changelogs.
        others: Any conf that may change, with its value.

    Raises:
        UsageError: one may not change, or not to that.
    """
    said: list[tuple[str, str, str]] = []
    if shuffle_partitions is not None:
        said.append(("--shuffle-partitions", SHUFFLE_PARTITIONS, f"{shuffle_partitions}"))
    if state_store is not None:
        said.append(("--state-store", STATE_STORE_PROVIDER, _find_provider(state_store)))
    if changelog is not None:
        said.append(("--changelog", CHANGELOG, _SWITCHES[changelog]))
    said += [(f"--conf {key}", key, value) for key, value in others]
    conf: dict[str, str] = {}
    for option, key, value in said:
        _require_allowed(option, key, value)
        if conf.setdefault(key, value) != value:
            raise UsageError("it is said twice, and otherwise", subject=option, found=f"{value}, and {conf[key]}")
    return conf


def _find_provider(name: str) -> str:
    if name not in STATE_STORES:
        raise UsageError(
            "no such state store is known",
            subject="--state-store",
            found=name[:80],
            expected=f"one of {', '.join(STATE_STORES)}",
        )
    return STATE_STORES[name]


def _require_allowed(option: str, key: str, value: str) -> None:
    if key not in _ALLOWED:
        raise UsageError(
            "this conf does not change with the state that is made anew",
            subject=option[:200],
            expected=f"one of {', '.join(_ALLOWED)}",
        )
    allowed = _ALLOWED[key]
    is_count = _COUNT.fullmatch(value) is not None and int(value) <= PARTITIONS_MAX
    if not (value in allowed or (is_count and not allowed)):
        raise UsageError(
            "this conf has no such value",
            subject=option,
            found=value[:80],
            expected=f"one of {', '.join(allowed)}" if allowed else f"1 to {PARTITIONS_MAX} partitions",
        )


def parse_conf_words(words: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Keys and values of `KEY=VALUE`, as `spark-submit --conf` takes them.

    Raises:
        UsageError: one is something else.
    """
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            raise UsageError("a conf has a value", subject="--conf", found=word[:200], expected="KEY=VALUE")
        yield key.strip(), value.strip()


def list_conf_words(conf: Mapping[str, str]) -> tuple[str, ...]:
    """The options by which a person says them."""
    words: list[str] = []
    names = {provider: name for name, provider in STATE_STORES.items()}
    for key, value in conf.items():
        if key == SHUFFLE_PARTITIONS:
            words += ("--shuffle-partitions", value)
        elif key == STATE_STORE_PROVIDER:
            words += ("--state-store", names[value])
        elif key == CHANGELOG:
            words += ("--changelog", "on" if value == _SWITCHES[True] else "off")
        else:
            words += ("--conf", f"{key}={value}")
    return tuple(words)


def replace_pinned(plan: OffsetEntry, conf: Mapping[str, str]) -> OffsetEntry:
    """The plan of a batch with what it is to pin; the same to the byte where it pins that already."""
    changed = {key: value for key, value in _select_pinned(conf).items() if plan.conf.get(key) != value}
    return plan.with_conf(changed) if changed else plan


def find_unknown(plan: OffsetEntry, conf: Mapping[str, str]) -> str | None:
    """A conf that the Spark which has made the plan does not pin; None if it pins all."""
    return next((key for key in _select_pinned(conf) if key not in plan.conf and key not in _SAID_FIRST), None)


def list_grounds(plan: OffsetEntry, conf: Mapping[str, str]) -> Iterator[str]:
    """On what it rests that the state is kept as was said; one line each.

    Args:
        plan: As it was.
        conf: What was said.
    """
    for key, value in conf.items():
        before = plan.conf.get(key)
        if key == CHANGELOG:
            yield f"your start of the application with {key}={value}, which no log pins: the rows are the same without"
        elif before == value:
            yield f"{key}={value}, as the log has it already"
        else:
            was = "where it did not stand" if before is None else f"where it was {before}"
            yield f"{key}={value} in the log, {was}: Spark goes by the log, whatever the application sets"


def describe_changes(plan: OffsetEntry, conf: Mapping[str, str]) -> str:
    """What becomes of the confs of a plan, to be said after why it is written; empty if nothing does."""
    told = _select_pinned(conf).items()
    changed = [f"{key} becomes {value}" for key, value in told if plan.conf.get(key) != value]
    return f"; {', '.join(changed)}" if changed else ""


def _select_pinned(conf: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in conf.items() if key != CHANGELOG}
