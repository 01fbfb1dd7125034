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
from dataclasses import field
from types import MappingProxyType
from typing import Final

from lastgood.checkpoint.empty_state import EMPTY_SNAPSHOTS
from lastgood.checkpoint.offsets import SHUFFLE_PARTITIONS, STATE_STORE_CODEC, STATE_STORE_PROVIDER, OffsetEntry
from lastgood.checkpoint.partitions import PARTITIONS_MAX
from lastgood.errors import UsageError
from lastgood.frozen import dataclass

CHANGELOG: Final = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
"""No plan pins it."""
_AGGREGATION_FORMAT = "spark.sql.streaming.aggregation.stateFormatVersion"
_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
HDFS_BACKED: Final = f"{_PACKAGE}.HDFSBackedStateStoreProvider"
ROCKSDB: Final = f"{_PACKAGE}.RocksDBStateStoreProvider"
_COUNT = re.compile(r"[1-9]\d{0,8}", re.ASCII)


@dataclass(frozen=True, slots=True)
class _Conf:
    """A conf that may change."""

    option: str | None = None
    """By which a person says it; None: `--conf`."""
    values: Mapping[str, str] = field(default_factory=dict)
    """Those that it may have, by how a person says them; none: a number of partitions."""
    is_pinned: bool = True
    """Whether plans pin it."""
    is_in_every_spark: bool = False
    """Whether every Spark pins it, so that it can be said where a plan does not."""


def _list_as_they_are(*values: str) -> Mapping[str, str]:
    return MappingProxyType(dict(zip(values, values, strict=True)))


STATE_STORES: Final = MappingProxyType({"rocksdb": ROCKSDB, "hdfs": HDFS_BACKED})
"""As a person says it, and as the log has it."""
_SWITCH: Final = MappingProxyType({"on": "true", "off": "false"})
_CONFS: Final[Mapping[str, _Conf]] = MappingProxyType(
    {
        SHUFFLE_PARTITIONS: _Conf("--shuffle-partitions", is_in_every_spark=True),
        STATE_STORE_PROVIDER: _Conf("--state-store", STATE_STORES, is_in_every_spark=True),
        CHANGELOG: _Conf("--changelog", _SWITCH, is_pinned=False),
        STATE_STORE_CODEC: _Conf(values=_list_as_they_are(*EMPTY_SNAPSHOTS)),
        _AGGREGATION_FORMAT: _Conf(values=_list_as_they_are("1", "2")),
    }
)


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
        said.append(_read_option(SHUFFLE_PARTITIONS, f"{shuffle_partitions}"))
    if state_store is not None:
        said.append(_read_option(STATE_STORE_PROVIDER, state_store))
    if changelog is not None:
        word = "off"
        if changelog:
            word = "on"
        said.append(_read_option(CHANGELOG, word))
    for key, value in others:
        said.append(_read_other(key, value))
    conf: dict[str, str] = {}
    for option, key, value in said:
        if conf.setdefault(key, value) != value:
            raise UsageError("it is said twice, and otherwise", subject=option, found=f"{value}, and {conf[key]}")
    return conf


def _read_option(key: str, word: str) -> tuple[str, str, str]:
    """The option that a conf has of its own, the conf, and its value."""
    conf = _CONFS[key]
    option = conf.option or "--conf"
    if not conf.values:
        _require_count(option, word)
        return option, key, word
    if word not in conf.values:
        raise UsageError(
            "there is no such value", subject=option, found=word[:80], expected=f"one of {', '.join(conf.values)}"
        )
    return option, key, conf.values[word]


def _read_other(key: str, value: str) -> tuple[str, str, str]:
    """The same of a conf that is said by its name."""
    option = f"--conf {key}"
    if key not in _CONFS:
        raise UsageError(
            "this conf does not change with the state that is made anew",
            subject=option[:200],
            expected=f"one of {', '.join(_CONFS)}",
        )
    allowed = _CONFS[key].values.values()
    if not allowed:
        _require_count(option, value)
    elif value not in allowed:
        raise UsageError(
            "this conf has no such value", subject=option, found=value[:80], expected=f"one of {', '.join(allowed)}"
        )
    return option, key, value


def _require_count(option: str, value: str) -> None:
    if _COUNT.fullmatch(value) is None or int(value) > PARTITIONS_MAX:
        raise UsageError(
            "this conf has no such value",
            subject=option,
            found=value[:80],
            expected=f"1 to {PARTITIONS_MAX} partitions",
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
    for key, value in conf.items():
        known = _CONFS[key]
        if known.option is None:
            words += ("--conf", f"{key}={value}")
        else:
            said = {each: word for word, each in known.values.items()}
            words += (known.option, said.get(value, value))
    return tuple(words)


def replace_pinned(plan: OffsetEntry, conf: Mapping[str, str]) -> OffsetEntry:
    """The plan of a batch with what it is to pin; the same to the byte where it pins that already."""
    changed = _select_changed(plan, conf)
    if not changed:
        return plan
    return plan.with_conf(changed)


def find_unknown(plan: OffsetEntry, conf: Mapping[str, str]) -> str | None:
    """A conf that the Spark which has made the plan does not pin; None if it pins all."""
    for key in _select_pinned(conf):
        is_known = key in plan.conf or _CONFS[key].is_in_every_spark
        if not is_known:
            return key
    return None


def list_grounds(plan: OffsetEntry, conf: Mapping[str, str]) -> Iterator[str]:
    """On what it rests that the state is kept as was said; one line each.

    Args:
        plan: As it was.
        conf: What was said.
    """
    for key, value in conf.items():
        before = plan.conf.get(key)
        if not _CONFS[key].is_pinned:
            yield f"your start of the application with {key}={value}, which no log pins: the rows are the same without"
        elif before == value:
            yield f"{key}={value}, as the log has it already"
        else:
            was = "where it did not stand" if before is None else f"where it was {before}"
            yield f"{key}={value} in the log, {was}: Spark goes by the log, whatever the application sets"


def describe_changes(plan: OffsetEntry, conf: Mapping[str, str]) -> str:
    """What becomes of the confs of a plan, to be said after why it is written; empty if nothing does."""
    changed = [f"{key} becomes {value}" for key, value in _select_changed(plan, conf).items()]
    if not changed:
        return ""
    return f"; {', '.join(changed)}"


def _select_changed(plan: OffsetEntry, conf: Mapping[str, str]) -> dict[str, str]:
    pinned = _select_pinned(conf)
    changed = [key for key in pinned if plan.conf.get(key) != pinned[key]]
    return {key: pinned[key] for key in changed}


def _select_pinned(conf: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in conf.items() if _CONFS[key].is_pinned}
