"""A report as Markdown, for people who were asleep. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from lastgood.incident.report import IncidentReport
from lastgood.journal.incident import PERSON, RECOVERED, Incident, describe_way_back, list_files, list_ranges
from lastgood.signing import SignatureStanding
from lastgood.visible import Excerpt, make_visible, shorten, take_excerpt

_FILES_SHOWN = 20
_ROWS_SHOWN = 200
_CELL_MAX = 5_000
_TEXT_MAX = 1_000
"""Characters of one line that is no command."""
_PRICES = (("reread", "read again"), ("lost", "lost"), ("duplicated", "written twice"))
_OUTCOMES = {
    "open": "Open: no new batch has been committed yet.",
    "recovered": "Recovered.",
    "person": "A person is needed.",
    "stopped": "Stopped: it is not started again.",
    "undone": "The repair was taken back.",
    "interrupted": "The repair was interrupted: the checkpoint is sealed until it is finished or taken back.",
}
_PROMISES = {
    "kept": "**Kept.** The first new batch did what was promised.",
    "broken": "**Broken.** The first new batch did something else than was promised; somebody should look at it.",
    "unknown": "**Not known.** Nothing contradicts it, and not all of it could be seen.",
}
_SIGNATURES = {
    SignatureStanding.UNSIGNED: "it carries no signature",
    SignatureStanding.OTHER_KEY: "it names another key",
    SignatureStanding.OTHER_PLACE: "it was signed for another place",
    SignatureStanding.WRONG: "it was changed since it was signed",
}
_MARKUP = re.compile(r"([\\`*_\[\]<>|#&~!])")
_BEGINNING = re.compile(r"^(\d+(?=[.)])|(?=[-+=]))")
"""Of a list or a line, where it is the first of a paragraph: what a backslash goes behind."""
_BLANKS = re.compile(r"\s+")


def format_page(report: IncidentReport) -> str:
    """The whole report as Markdown; times are UTC."""
    sections = (
        _format_head(report),
        _format_section("What happened", _format_timeline(report)),
        _format_section("Why", _format_cause(report.incident)),
        _format_section("What was done, and why", _format_attempts(report.incident)),
        _format_section("What it cost", _format_price(report.incident.plan)),
        _format_section("What is lost", _format_lost(report)),
        _format_section("What that rests on", _format_grounds(report.incident.plan)),
        _format_section("Why the driver was known to be dead", _format_proofs(report)),
        _format_section("The promise", _format_promise(report)),
        _format_section("What is not signed", _format_signatures(report)),
        _format_section("How to take it back", _undo(report)),
    )
    return "\n".join(section for section in sections if section)


def _format_head(report: IncidentReport) -> str:
    incident = report.incident
    kind = "Recovery" if report.is_by_hand else "Incident"
    name = incident.pipeline or incident.checkpoint.rpartition("/")[2]
    pipeline = None
    if incident.pipeline is not None:
        pipeline = _escape_text(incident.pipeline)
    promise = None
    if incident.promise_state is not None:
        promise = _escape_text(incident.promise_state)
    rows = {
        "checkpoint": _format_code(incident.checkpoint),
        "pipeline": pipeline,
        "planned" if report.is_by_hand else "failed": _format_time(incident.failed_at_ms),
        "stood at": _format_position(incident.position),
        "back after": _format_back(report),
        "came back": _format_way_back(report.incident),
        "guarantee": _format_guarantee(incident.plan),
        "promise": promise,
    }
    lines = [f"# {kind} {_escape_text(incident.id)}: {_escape_text(name)}", "", f"**{_OUTCOMES[report.outcome]}**", ""]
    return "\n".join(
        [*lines, *_format_table(("", ""), take_excerpt((name, told) for name, told in rows.items() if told)), ""]
    )


def _format_position(position: Mapping[str, int | None]) -> str | None:
    names = {"planned": "planned", "committed": "committed"}
    told = [f"batch {position[name]} {word}" for name, word in names.items() if position.get(name) is not None]
    return ", ".join(told) or None


def _format_back(report: IncidentReport) -> str | None:
    seconds = report.incident.back_after_seconds
    if seconds is None or report.outcome != RECOVERED:
        return None
    again = ", which ran again" if report.incident.rerun else ""
    return f"{_format_span(seconds)}, with batch {report.incident.first_batch}{again}"


def _format_way_back(incident: Incident) -> str | None:
    if incident.back is None or not incident.parts:
        return None
    return _escape_text(describe_way_back(incident.back.way, incident.parts))


def _format_guarantee(plan: Mapping[str, Any] | None) -> str | None:
    if plan is None or "guarantee" not in plan:
        return None
    return _escape_text(str(plan["guarantee"]).replace("_", " "))


def _format_timeline(report: IncidentReport) -> Iterator[str]:
    began = report.incident.failed_at_ms
    rows = (
        (
            _format_time(turn.at_ms),
            _format_span((turn.at_ms - began) / 1000),
            _escape_text(turn.what),
            _format_took(turn.seconds),
        )
        for turn in report.timeline
    )
    yield from _format_table(("time", "after", "what", "took"), take_excerpt(rows, _ROWS_SHOWN))


def _format_took(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return _format_span(seconds)


def _format_cause(incident: Incident) -> Iterator[str]:
    cause = incident.cause or {}
    if cause.get("because"):
        yield f"{_format_sentence(cause['because'])}"
        yield ""
    names = {"class": "class", "condition": "condition", "error": "error", "exit_code": "exit code", "log": "log"}
    told = {label: cause.get(name) for name, label in {**names, "signal": "signal"}.items()}
    yield from (f"- {label}: {_format_code(str(value))}" for label, value in told.items() if value is not None)


def _format_attempts(incident: Incident) -> Iterator[str]:
    words = {"restart": "Started again", "repair": "Repaired", "wait": "Waited", "stop": "Left to a person"}
    part = take_excerpt(incident.attempts)
    for number, attempt in enumerate(part.shown, 1):
        yield f"{number}. {words[attempt.did]}: {_escape_text(attempt.because)}"
        plan = attempt.plan or {}
        if attempt.recovery is not None:
            yield f"   by recovery {_escape_text(attempt.recovery)}, goal {_format_code(plan.get('goal', 'unknown'))}:"
        elif plan.get("steps"):
            yield f"   the plan {_escape_text(str(plan.get('recovery', '')))} would do this:"
        steps = take_excerpt(plan.get("steps", ()))
        yield from (f"   - {_escape_text(step['do'])}" for step in steps.shown)
        yield from (f"   - {line}" for line in steps.more)
        if attempt.file is not None:
            yield f"   As was noted down then, the plan waits for a person in {_format_code(attempt.file)}."
    yield from part.more


def _format_price(plan: Mapping[str, Any] | None) -> Iterator[str]:
    if plan is None:
        return
    rows = take_excerpt((row for source in plan.get("sources", ()) for row in _format_prices_of(source)), _ROWS_SHOWN)
    if not rows.shown:
        yield "Nothing: no record is read again, lost, or written twice."
        return
    yield from _format_table(("source", "what", "partition", "offsets", "count"), rows)
    yield ""
    yield "Ranges are `[from, to)` in offsets, which are not records."
    if any(source["bound"] for source in plan["sources"]):
        yield "Where it says *at most*, nobody can know exactly."


def _format_prices_of(source: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    most = "at most " if source["bound"] else ""
    name = _escape_text(f"{source['index']} ({source['kind']})")
    for what, words in _PRICES:
        for topic, partition, start, end in list_ranges(source, what):
            place = _escape_text(f"{topic}/{partition}")
            yield name, words, place, f"[{start:,}, {end:,})", f"{most}{end - start:,}"
        for topic, partitions in source.get(f"{what}_from", {}).items():
            for partition, start in partitions.items():
                yield name, words, _escape_text(f"{topic}/{partition}"), f"from {start:,} on", "nobody wrote it down"
        files = list_files(source, what)
        if files:
            shown = take_excerpt(map(_format_code, files), _FILES_SHOWN).in_a_line
            yield name, words, shown, "", f"{most}{len(files):,} files"


def _format_lost(report: IncidentReport) -> Iterator[str]:
    if not report.lost:
        return
    yield "For the owner of the producer: these records were not processed. Send them again if they matter."
    yield ""
    rows = (
        (
            _escape_text(each.topic),
            str(each.partition),
            f"{each.start:,} to {each.end - 1:,}",
            _count(each.end - each.start, is_bound=each.bound),
            _format_written(each.after_ms, each.before_ms),
        )
        for each in report.lost
    )
    yield from _format_table(("topic", "partition", "offsets", "count", "written"), take_excerpt(rows, _ROWS_SHOWN))


def _count(offsets: int, *, is_bound: bool) -> str:
    if is_bound:
        return f"at most {offsets:,}"
    return f"{offsets:,}"


def _format_written(after_ms: int | None, before_ms: int | None) -> str:
    told = [f"{word} {_format_time(at)}" for word, at in (("after", after_ms), ("before", before_ms)) if at is not None]
    return ", ".join(told) or "not known"


def _format_grounds(plan: Mapping[str, Any] | None) -> Iterator[str]:
    if plan is None:
        return
    yield from _list(map(_escape_text, plan.get("rests_on", ())))
    yield from _list(map(_format_sink_then, plan.get("sinks", ())))
    for name, words in (("accepted", "accepted"), ("needs", "not accepted by anybody yet")):
        if plan.get(name):
            yield f"- {words}: {_escape_text(', '.join(map(str, plan[name])))}"


def _format_sink_then(sink: Mapping[str, Any]) -> str:
    if sink["batch"] is None:
        shows = "not known"
    else:
        shows = f"batch {sink['batch']}"
    return f"{_escape_text(sink['kind'])} sink {_format_code(sink['location'])} showed when it was planned: {shows}"


def _format_proofs(report: IncidentReport) -> Iterator[str]:
    told = [attempt.proof for attempt in report.incident.attempts] + [each.proof for each in report.recoveries]
    yield from _list(_escape_text(proof) for proof in dict.fromkeys(told) if proof is not None)


def _format_promise(report: IncidentReport) -> Iterator[str]:
    incident = report.incident
    if incident.promise is not None:
        yield _PROMISES[incident.promise["state"]]
        yield ""
        yield from _list(map(_escape_text, incident.promise["because"]))
    elif report.outcome == PERSON:
        yield "Nothing has been promised yet: a person has to decide."
    elif report.outcome == "undone":
        yield "It was taken back with the repair."
    else:
        yield "No new batch has been committed yet that could keep it."


def _format_signatures(report: IncidentReport) -> Iterator[str]:
    """What nobody with a key of this machine has signed: anybody who can write there may have written it."""
    if report.is_by_hand:
        told = []
    else:
        told = [(f"incident {report.incident.id}", report.signature)]
    told += [(f"recovery {done.recovery}", done.signature) for done in report.recoveries]
    yield from _list(
        f"What is noted down of {what} is not signed by a key of this machine: {_SIGNATURES[signature]}."
        for what, signature in told
        if signature is not None and signature is not SignatureStanding.SIGNED
    )


def _undo(report: IncidentReport) -> Iterator[str]:
    part = take_excerpt(report.recoveries)
    for done in part.shown:
        if done.state == "undone":
            yield f"Recovery {_escape_text(done.recovery)} was taken back: every byte was put back as it was."
            continue
        first = report.incident.first_batch
        if first is not None:
            yield f"The query has gone on since ({_format_code(done.undo_command)} refuses that, and changes nothing)."
        else:
            yield f"{_format_code(done.undo_command)}, as long as the query has not gone on."
        yield f"Every file that was touched is kept as it was in {_format_code(done.backup)}."
    yield from part.more
    if not report.recoveries:
        yield "Nothing was changed."


def _format_section(title: str, lines: Iterable[str]) -> str:
    body = "\n".join(lines)
    if not body:
        return ""
    return f"## {title}\n\n{body}\n"


def _format_table(head: tuple[str, ...], rows: Excerpt[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    yield from (f"| {' | '.join(map(_format_cell, row))} |" for row in rows.shown)
    if rows.left:
        yield ""
        yield from rows.more


def _format_cell(told: str) -> str:
    """A cell as it is; one that is too long is not cut, since it may be code, which has an end."""
    return told if len(told) <= _CELL_MAX else f"({len(told):,} characters)"


def _list(lines: Iterable[str]) -> Iterator[str]:
    part = take_excerpt(lines)
    yield from (f"- {line}" for line in (*part.shown, *part.more))


def _escape_text(told: str) -> str:
    """A text that means itself, on one line: an error may quote anything."""
    text = _MARKUP.sub(r"\\\1", make_visible(_BLANKS.sub(" ", shorten(told, _TEXT_MAX)).strip()))
    return _BEGINNING.sub(r"\1\\", text)


def _format_sentence(told: str) -> str:
    text = _escape_text(told)
    return f"{text[:1].upper()}{text[1:]}."


def _format_code(told: str) -> str:
    """A text as code, on one line, also within a table."""
    text = make_visible(_BLANKS.sub(" ", shorten(told)).strip())
    if r"\|" in text:  # readers differ in whether such a bar, escaped, ends a cell; in plain text they do not
        return _escape_text(text)
    text = text.replace("|", r"\|")
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    blank = " " if "`" in text else ""
    return f"{fence}{blank}{text}{blank}{fence}"


def _format_time(at_ms: int) -> str:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def _format_span(seconds: float) -> str:
    sign, rest = ("-" if seconds < 0 else ""), abs(seconds)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if rest >= size:
            return f"{sign}{rest / size:.1f} {unit}"
    return f"{sign}{rest:.1f} s"
