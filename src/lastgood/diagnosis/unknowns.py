"""What a diagnosis does not know of sinks and topics: one line each, none only where nothing is unknown. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from lastgood.diagnosis.rules_kafka_broker import judge_identities
from lastgood.diagnosis.rules_links import select_links_that_matter
from lastgood.query.observation import Observation, make_views
from lastgood.query.prediction.restart import Restart
from lastgood.query.prediction.source_replay import list_begun_by_options
from lastgood.query.sink_batches import find_planned_anew
from lastgood.query.sinks import NONE
from lastgood.query.unmarked import find_unmarked
from lastgood.sources.files.facts import describe_assumed_max_age, describe_left_out, find_least_age_to_hold
from lastgood.sources.kafka.retention import TopicIdentity

_OPEN = (TopicIdentity.UNKNOWN, TopicIdentity.LOOKS_RECREATED, TopicIdentity.MAY_BE_RECREATED)

_LINKS_SHOWN = 5


def find_unknowns(observed: Observation, restart: Restart) -> Iterator[str]:
    """What sinks and broker were not asked, or did not tell.

    Args:
        observed: What was found and asked.
        restart: What Spark will do.
    """
    for path, target in sorted(select_links_that_matter(observed.links, observed.folder).items())[:_LINKS_SHOWN]:
        yield f"what {path} holds: it is a link to {target}, which Spark follows and lastgood does not"
    if not observed.sinks:
        yield f"whether the sink {_describe_due(observed)}: none was asked (--sink)"
    yield from _list_of_those_who_remember(observed)
    yield from _list_of_sinks(observed)
    yield from _list_unmarked(observed)
    yield from _list_untold_files(observed)
    for each in list_begun_by_options(observed):
        yield f"whether {each}"
    for source_id, again in observed.files_again.items():
        least_ms = find_least_age_to_hold(again)
        if least_ms is not None:
            told = describe_assumed_max_age(source_id, least_ms)
            yield f"whether {told}: else files that were written again are read once more"
        others = describe_left_out(source_id, again)
        if others is not None:
            yield f"whether {others}"
    for topic, answer in judge_identities(observed, restart):
        because = answer.because if answer.identity in _OPEN else answer.assumes
        if because is not None:
            yield f"whether {topic} is the topic that was read: {because}"


def _list_of_those_who_remember(observed: Observation) -> Iterator[str]:
    if observed.memory is not None and observed.memory.unknown is not None:
        yield f"whether the query has run here before: the ledger {observed.memory.place}: {observed.memory.unknown}"
    for each in observed.committed_elsewhere:
        if each.unknown is not None:
            yield f"whether {each.holder} knows later batches than the logs: {each.unknown}"


def _describe_due(observed: Observation) -> str:
    orphan = observed.checkpoint.orphan
    if orphan is None:
        return "holds what is committed, and no more"
    return f"has batch {orphan}"


def _list_of_sinks(observed: Observation) -> Iterator[str]:
    for view in make_views(observed):
        sink, unmarked = view.sink, view.absent_before()
        if not view.has_every_mark:
            unmarked += view.absent()
        if unmarked:
            yield f"{sink.location}: whether batch {unmarked[0]} had rows, of which it shows nothing"
        if not sink.known:
            yield f"{sink.location}: what it shows: {sink.because}"
        elif sink.presumed_app_id is not None:
            yield f"{sink.location}: whether the query writes there as {sink.presumed_app_id} (--txn-app-id)"
        elif sink.unclear is not None:
            yield f"{sink.location}: which of its batches are still there: {sink.unclear}"
        elif view.complete_to is None and not view.is_planned_anew:
            shown = "no batch of this query" if view.shown == NONE else f"batch {view.shown} as its newest"
            yield f"{sink.location}: whether it {_describe_due(observed)}: it shows {shown}"
        if view.told_by_clocks is not None:
            yield f"whether {view.told_by_clocks}"
        anew = find_planned_anew(observed.checkpoint, sink)
        if anew is not None:
            yield f"{sink.location}: which plan its batch {observed.checkpoint.orphan} is of: {anew.because}"


def _list_untold_files(observed: Observation) -> Iterator[str]:
    for sink in observed.sinks:
        if sink.files_untold is not None:
            yield f"{sink.location}: whether its data files are there: {sink.files_untold}"


def _list_unmarked(observed: Observation) -> Iterator[str]:
    for view in make_views(observed):
        found = find_unmarked(view)
        if found is not None:
            yield f"{view.sink.location}: whether it has batch {found.batches[0]} under no mark of it: {found.because}"
