"""Every condition that lastgood can name, told once: for `lastgood explain` and for the reference page.

A condition may be a finding, an error, or both: `diagnose` reports it, and who is asked to act on it refuses.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Collection
from dataclasses import replace

import lastgood
from lastgood.diagnosis import (
    rules_advice,
    rules_failures,
    rules_kafka,
    rules_left,
    rules_links,
    rules_logs,
    rules_lost,
    rules_seal,
    rules_sinks,
    rules_source_logs,
    rules_sources,
    rules_state,
)
from lastgood.diagnosis.findings import Condition, Severity
from lastgood.errors import LastgoodError, Retry
from lastgood.frozen import dataclass
from lastgood.values import JsonValue, make_form

_THEMES: tuple[tuple[str, tuple[Condition, ...]], ...] = (
    (
        "Logs of the checkpoint",
        (
            *rules_seal.CONDITIONS,
            *rules_links.CONDITIONS,
            *rules_lost.CONDITIONS,
            *rules_left.CONDITIONS,
            *rules_logs.CONDITIONS,
        ),
    ),
    ("Logs of the sources", rules_source_logs.CONDITIONS),
    ("State", rules_state.CONDITIONS),
    ("Kafka", rules_kafka.CONDITIONS),
    ("Other sources", rules_sources.CONDITIONS),
    ("Sinks", rules_sinks.CONDITIONS),
    ("Failures that a driver's log tells of", rules_failures.CONDITIONS),
    ("Advice", rules_advice.CONDITIONS),
)
CONDITIONS: tuple[Condition, ...] = tuple(condition for _, conditions in _THEMES for condition in conditions)
"""Of every finding, in the order of their themes."""
_ERROR_THEMES = (
    (9, "Errors: usage and installation"),
    (19, "Errors: storage"),
    (39, "Errors: checkpoint"),
    (49, "Errors: history and backups"),
    (59, "Errors: plans"),
    (69, "Errors: sources and sinks"),
    (99, "Errors: supervisor"),
)
_NAMES_A_CONDITION = re.compile(r"^    condition(?:: [\w\[\]]+)? = \"(\w+)\"", re.MULTILINE)
_PROPER_NAMES = ("Spark", "Kafka", "Delta")
_SCRIPTS = ("lastgood.spark.audit_job",)
"""Run by a cluster, never imported."""


@dataclass(frozen=True, slots=True)
class Topic(JsonValue):
    """All that is known of one condition."""

    json = make_form("condition=name theme title story severity=severity.word exit_code retry")
    """What `explain --format json` prints of it."""

    name: str
    theme: str
    title: str
    """What is so, one line, lower case, without a full stop."""
    story: str
    """Paragraphs, separated by blank lines; may be empty where the title says it all."""
    severity: Severity | None = None
    """As a finding; None if it is never one."""
    exit_code: int | None = None
    """As an error; None if it is never one."""
    retry: Retry | None = None


def list_names() -> tuple[str, ...]:
    """The name of every condition, findings first; no library need be there for that."""
    found = dict.fromkeys(condition.name for condition in CONDITIONS)
    return tuple(found | dict.fromkeys(sorted(_find_declared())))


def list_topics(wanted: Collection[str] | None = None) -> tuple[Topic, ...]:
    """Conditions, each once: findings by theme, then what is only an error, by exit code.

    Args:
        wanted: Names; None: all of them.
    """
    found = {
        condition.name: Topic(condition.name, theme, condition.title, condition.story, condition.severity)
        for theme, conditions in _THEMES
        for condition in conditions
    }
    for error in list_error_classes(wanted):
        known = found.get(error.condition) or _make_topic(error)
        found[error.condition] = replace(known, exit_code=error.exit_code, retry=error.retry)
    return tuple(topic for topic in found.values() if wanted is None or topic.name in wanted)


def list_error_classes(wanted: Collection[str] | None = None) -> tuple[type[LastgoodError], ...]:
    """Errors of lastgood, by exit code and condition.

    A part whose libraries are not installed can raise nothing, and is left out.

    Args:
        wanted: Their conditions; None: all of them.
    """
    declared = _find_declared()
    for name in {module for condition, module in declared.items() if wanted is None or condition in wanted}:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "lastgood":
                raise
    found, new = set[type[LastgoodError]](), [LastgoodError]
    while new:
        found.update(new)
        new = [below for each in new for below in each.__subclasses__()]
    chosen = (each for each in found if each.condition in declared and (wanted is None or each.condition in wanted))
    return tuple(sorted(chosen, key=lambda each: (each.exit_code, each.condition)))


def _find_declared() -> dict[str, str]:
    """Condition of every error, and the module of its class; read, since to import them all would take a second."""
    found: dict[str, str] = {}
    for module in pkgutil.walk_packages(lastgood.__path__, "lastgood."):
        if module.name in _SCRIPTS:
            spec = None
        else:
            spec = importlib.util.find_spec(module.name)
        source = None
        if spec:
            source = getattr(spec.loader, "get_source", lambda _: None)(module.name)
        found |= dict.fromkeys(_NAMES_A_CONDITION.findall(source or ""), module.name)
    return found


def _make_topic(error: type[LastgoodError]) -> Topic:
    theme = next(theme for highest, theme in _ERROR_THEMES if error.exit_code <= highest)
    if error is LastgoodError:
        return Topic(error.condition, theme, "a bug of lastgood", "Please report it, with what you typed and saw.")
    first, _, rest = (error.__doc__ or "").strip().partition("\n")
    title = first.rstrip(".")
    if title[1:2].islower() and title.split(" ", 1)[0] not in _PROPER_NAMES:
        title = title[:1].lower() + title[1:]
    paragraphs = (" ".join(paragraph.split()) for paragraph in rest.split("\n\n"))
    return Topic(error.condition, theme, title, "\n\n".join(each for each in paragraphs if each))
