"""Whether a query that is about to start goes with what its checkpoint holds: the one judge of it. Pure.

Spark itself compares the number of sources, the number of stateful operators (since 4.0) and the types of what is kept,
and stops where they differ. It goes by places and types only: state of another meaning, and offsets of another source,
it takes for the query's own.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

FORMAT_VERSION = 1
KEPT_FILE = "kept.json"
"""`[{"checkpoint": …, "kept": …}]`; see `fit.compare`."""
CODE_SUFFIX = ".code.json"
"""Ends the name of the file of each start: `{"checkpoint": …, "code": …, "misfits": …}`; `code` None: no state."""
FAILS, REUSED, RENAMED = "fails", "reused", "renamed"
"""Spark stops by itself; it takes for its own what is not; it does so, and that may be right: another name."""
_SUBSCRIPTIONS = ("subscribe", "subscribepattern", "assign")
_ROOT = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?(?=/)")
_GLOB = re.compile(r"[*?\[{]")
_SESSION_START = "sessionStartTime"
_SHOWN = 3
_COUNTS_OPERATORS = 4
"""From this Spark on it stops where operators are missing; before, it leaves their state alone."""


def compare(kept: Mapping[str, Any], code: Mapping[str, Any]) -> list[dict[str, str]]:
    """What does not go with what is kept; empty if all does, as far as both tell.

    Args:
        kept: `sources` of the newest plan: `topics` of each, or `files` that it has read; `operators` as the code has
            them; `noted`: the code that ran before, as far as the state is from it, or None.
        code: See `shape.describe`.

    Returns:
        `subject`, such as `state/0`; `found` in the code; `expected` by the checkpoint; `outcome`.
    """
    operators, noted = kept["operators"], kept["noted"]
    found = list(_compare_sources(kept["sources"], code["sources"]))
    if operators:
        found += _compare_operators(operators, code)
    if noted is not None and len(operators) == len(code["operators"]):
        found += _compare_noted(noted, code)
    return found


def _make(subject: str, found: str, expected: str, outcome: str) -> dict[str, str]:
    return {"subject": subject, "found": found, "expected": expected, "outcome": outcome}


def _compare_sources(kept: Sequence[Mapping[str, Any]], code: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, str]]:
    if not kept:
        return
    if len(kept) != len(code):
        yield _make("sources", f"{len(code)} sources in the code", f"{len(kept)} in the newest plan", FAILS)
        return
    for number, (before, now) in enumerate(zip(kept, code)):  # noqa: B905 - Python 3.9 has no strict
        others = [each for each in code if each is not now]
        compare_one = _compare_topics if before.get("topics") else _compare_files
        yield from compare_one(f"sources/{number}", before, now, others)


def _compare_topics(
    subject: str, before: Mapping[str, Any], now: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, str]]:
    topics = set(before["topics"])
    expected, options = f"Kafka, {_show(topics)}", _list_subscriptions(now)
    if not options:
        yield _make(subject, f"a source of kind {now['kind']}", expected, FAILS)
    elif not _can_read_topics(now, topics):
        found = ", ".join(f"{name} {value}" for name, value in options.items())
        yield _make(subject, f"Kafka, {found}", expected, _judge_other_topics(topics, now, others))


def _judge_other_topics(topics: set[str], now: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """Spark misses partitions that it has read; where it is to go on without them, it does."""
    told = {name.lower(): str(value).lower() for name, value in now["options"].items()}
    if told.get("failondataloss") != "false":
        return FAILS
    is_taken = any(_can_read_topics(each, topics) for each in others)
    return REUSED if is_taken else RENAMED


def _can_read_topics(source: Mapping[str, Any], topics: set[str]) -> bool:
    """Whether it chooses any of these topics."""
    options = _list_subscriptions(source)
    if "subscribe" in options:
        return bool(topics & {each.strip() for each in options["subscribe"].split(",")})
    if "subscribepattern" in options:
        return any(_may_match(options["subscribepattern"], each) for each in topics)
    return any(f'"{each}"' in options.get("assign", "") for each in topics)


def _may_match(pattern: str, topic: str) -> bool:
    """Whether a pattern of Java's names a topic; one that Python does not read may."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what the two languages may read in two ways
        try:
            return re.fullmatch(pattern, topic) is not None
        except (re.error, Warning):
            return True


def _compare_files(
    subject: str, before: Mapping[str, Any], now: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, str]]:
    files = before.get("files")
    if not files:
        return
    expected = f"files such as {files[0]}, which it has read"
    if _list_subscriptions(now):
        yield _make(subject, f"a source of kind {now['kind']}", expected, FAILS)
    elif not _can_read_files(now, files):
        is_taken = any(_can_read_files(each, files, unknown=False) for each in others)
        yield _make(subject, f"files of {now['options'].get('path')}", expected, REUSED if is_taken else RENAMED)


def _can_read_files(source: Mapping[str, Any], files: Sequence[str], *, unknown: bool = True) -> bool:
    """Whether any of these files lies below its path, whatever the names of its store and of the protocol.

    Args:
        source: Of the code.
        files: As the log of a source has them.
        unknown: What counts where the path does not tell, as a relative one.
    """
    path = _take_path(source["options"].get("path") or "")
    begin = _GLOB.split(path)[0]
    if not path.startswith("/"):
        return unknown
    if begin == path:  # no pattern
        begin = f"{path.rstrip('/')}/"
    return any(f"{_take_path(each)}/".startswith(begin) for each in files)


def _take_path(location: str) -> str:
    """The path in a location, as it is written without escapes."""
    return re.sub("/+", "/", unquote(_ROOT.sub("", location)))


def _list_subscriptions(now: Mapping[str, Any]) -> dict[str, str]:
    """By which options a source chooses topics, in lower case; empty: it reads none."""
    options = {name.lower(): value for name, value in now["options"].items()}
    return {name: options[name] for name in _SUBSCRIPTIONS if name in options}


def _compare_operators(kept: Sequence[Mapping[str, Any]], code: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    operators = code["operators"]
    if len(kept) != len(operators):
        found = f"{len(operators)} stateful operators in the code: {_name_all(operators)}"
        outcome = FAILS
        if len(operators) < len(kept) and int(code["spark"].partition(".")[0]) < _COUNTS_OPERATORS:
            outcome = REUSED
        yield _make("state", found, f"{len(kept)}: {_name_all(kept)}", outcome)
        return
    for before, now in zip(kept, operators):  # noqa: B905
        subject = f"state/{before['id']}"
        if before["name"] and now["name"] and before["name"] != now["name"]:
            yield _make(subject, f"operator {now['name']}", f"operator {before['name']}", FAILS)
            continue
        yield from _compare_keys(subject, before["keys"], now["keys"])
        yield from _compare_values(subject, before, now)


def _compare_keys(
    subject: str, before: Sequence[Sequence[Any]] | None, now: Sequence[Sequence[Any]] | None
) -> Iterator[dict[str, str]]:
    if before is None or now is None:
        return
    kept = [each for each in before if each[0] != _SESSION_START]
    found, expected = f"grouped by {_show_columns(now)}", f"grouped by {_show_columns(kept)}"
    if _list_types(kept) != _list_types(now):
        yield _make(subject, found, expected, FAILS)
        return
    names, others = [each[0] for each in kept], [each[0] for each in now]
    if names != others:
        yield _make(subject, found, expected, REUSED if sorted(names) == sorted(others) else RENAMED)


def _compare_values(subject: str, before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    if before["values"] is None or now["values"] is None:
        return
    kept, wanted = list(before["values"]), list(now["values"])
    keys = [each[0] for each in before["keys"] or ()]
    if len(kept) > len(wanted) and [each[0] for each in kept[: len(keys)]] == keys:
        kept = kept[len(keys) :]  # state format 1 keeps the key in the value as well
    found, expected = f"keeps {_show_columns(wanted)}", f"keeps {_show_columns(kept)}"
    if _list_types(kept) != _list_types(wanted):
        yield _make(subject, found, expected, FAILS)
    elif [each[0] for each in kept] != [each[0] for each in wanted]:
        yield _make(subject, found, expected, REUSED)  # they are the names of the aggregates: sum, max


def _compare_noted(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """What neither a schema nor an offset tells, and the code told that ran before."""
    windows = [_take_window(each, before, now) for each in before["windows"]]
    others = [_take_window(each, before, now) for each in now["windows"]]
    if windows != others:
        found, expected = _show_windows(now["windows"]), _show_windows(before["windows"])
        yield _make("windows", found, f"{expected}, as the code had it that ran before", REUSED)
    if before["spark"] != now["spark"]:
        return  # each has words of its own for what an aggregate computes
    for kept, wanted in zip(before["operators"], now["operators"]):  # noqa: B905
        is_alike = _list_names(kept["values"]) == _list_names(wanted["values"])
        if is_alike and kept["computes"] != wanted["computes"]:
            found, expected = ", ".join(wanted["computes"]), ", ".join(kept["computes"])
            yield _make(f"state/{kept['id']}", found, f"{expected}, as the code had it that ran before", RENAMED)


def _take_window(window: Mapping[str, Any], before: Mapping[str, Any], now: Mapping[str, Any]) -> Any:
    """What of a window can be compared: each Spark has words of its own for the gap of a session."""
    if "gap" in window and before["spark"] != now["spark"]:
        return None
    return dict(window)


def _list_types(columns: Sequence[Sequence[Any]]) -> list[Any]:
    return [_take_type(each[1]) for each in columns]


def _take_type(kind: Any) -> Any:
    """A type without names, and without what may be empty: as Spark compares."""
    if not isinstance(kind, dict):
        return kind
    fields = kind.get("fields")
    if isinstance(fields, list):
        return [_take_type(each.get("type")) for each in fields if isinstance(each, dict)]
    inner = kind.keys() & {"type", "elementType", "keyType", "valueType"}
    return {name: _take_type(kind[name]) for name in inner}


def _show_windows(windows: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(_show_window(each) for each in windows) or "no windows"


def _show_window(window: Mapping[str, Any]) -> str:
    if "gap" in window:
        return f"sessions with a gap of {window['gap']}"
    length, slide = window["length_us"] / 1e6, window["slide_us"] / 1e6
    told = f"windows of {length:g} s"
    return told if length == slide else f"{told} every {slide:g} s"


def _list_names(columns: Sequence[Sequence[Any]] | None) -> list[str]:
    return [each[0] for each in columns or ()]


def _show_columns(columns: Sequence[Sequence[Any]]) -> str:
    return ", ".join(f"{name} {_show_type(kind)}" for name, kind in columns) or "nothing"


def _show_type(kind: Any) -> str:
    if isinstance(kind, dict):
        return str(kind.get("type"))
    return str(kind)


def _name_all(operators: Sequence[Mapping[str, Any]]) -> str:
    return ", ".join(f"{each['id']}: {each['name'] or 'unknown'}" for each in operators) or "none"


def _show(names: set[str]) -> str:
    listed = sorted(names)
    more = len(listed) - _SHOWN
    return ", ".join(listed[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
