"""What a start leaves out without an error, what a sink lacks already, what speaks against a word a little. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from lastgood.checkpoint.source_offsets import FileOffset, KafkaOffset, SourceOffset, get_topics
from lastgood.checkpoint.source_order import OffsetStep, compare_offsets
from lastgood.diagnosis.rules_kafka_broker import Suspicion, judge_identities, list_suspicions
from lastgood.planning import unread_files
from lastgood.planning.left_out import find_kafka_gaps
from lastgood.planning.price import Guarantee, SourcePrice
from lastgood.planning.pricing import (
    find_ends,
)
from lastgood.planning.repairs.repair import Outlook
from lastgood.planning.standing import Standing
from lastgood.query.edited_plans import find_edited_ends
from lastgood.query.kafka import find_expiring
from lastgood.query.missing import list_missing
from lastgood.query.prediction.kafka_source import Gap, KafkaGap
from lastgood.query.prediction.predict import predict
from lastgood.query.prediction.restart import Outcome
from lastgood.query.prediction.skipping import is_skipped, may_be_skipped
from lastgood.query.prediction.source_replay import list_begun_by_options
from lastgood.query.prediction.state_load import find_nothing_to_name
from lastgood.query.sink_batches import is_in_sinks
from lastgood.query.sinks import NONE, name_some
from lastgood.query.spans import list_stands
from lastgood.sinks.evidence import START_MS, DedupeKey, is_query_id
from lastgood.sources.kafka.ranges import Ranges, unite
from lastgood.sources.kafka.retention import TopicIdentity

_SETTLED = " (settled by an id from a mirror or a recorder, or by --topic-is-the-same)"


def find_beginnings(standing: Standing) -> dict[str, SourceOffset]:
    """Where the first batch begins, by source, as far as the sources wrote that down."""
    return {log.name: log.initial.offset for log in standing.checkpoint.sources if log.initial is not None}


def list_missing_already(standing: Standing, start: Mapping[str, SourceOffset] | None = None) -> Iterator[str]:
    """Rows of batches that are done and that a sink lacks, or may lack: no start brings them back.

    Args:
        standing: Where the query stands.
        start: Where it is to start, by source, if that is not where it stands: what comes after is read again.
    """
    yield from _list_edited(standing, start, is_left_out=True)
    yield from list_missing(standing.sinks, start)


def list_doubled_already(standing: Standing) -> Iterator[str]:
    """Rows of batches that are done and whose plans read nothing: what these rows are of comes once more."""
    yield from _list_edited(standing, None, is_left_out=False)
    for each in standing.sinks:
        for held in each.doubled().values():
            yield f"{each.sink.location} may have rows twice: {held.because}"


def _list_edited(standing: Standing, start: Mapping[str, SourceOffset] | None, *, is_left_out: bool) -> Iterator[str]:
    """Plans whose ends somebody has moved by hand, from which the query is to go on; one line each.

    Where the sinks are known to lack the orphan it does not matter how far that goes: the next batch begins there.
    """
    for each in find_edited_ends(standing.observed):
        if not (each.leaves_out if is_left_out else each.repeats):
            continue
        if each.batch_id > standing.committed and standing.sinks_known and standing.furthest < each.batch_id:
            continue
        chosen = None if start is None else start.get(each.source_id)
        if chosen and each.written and compare_offsets(chosen, each.written) is OffsetStep.ONWARD:
            continue
        told = "what lies between may be read by no batch" if is_left_out else "what lies between may be read twice"
        if each.is_known:
            plan = f"offsets/{each.batch_id} was edited since it was planned, as the mirror has it: it ends elsewhere"
        else:
            plan = f"offsets/{each.batch_id} lacks the checksum that Spark gave it: it may end elsewhere"
        yield f"{plan} in source {each.source_id}, and {told}"


def predict_silent_loss(standing: Standing) -> Outlook | None:
    """What a start would leave out without an error; None if nothing is known to be."""
    of_files = _predict_without_files(standing)
    if of_files is not None:
        return of_files
    other_topics = _predict_recreated(standing) or _predict_without_topics(standing)
    if other_topics is not None:
        return other_topics
    if standing.observed.fail_on_data_loss:
        return None
    why = _explain_untold(standing) or _warn_of_expiry(standing)
    if why is not None:
        return Outlook(Guarantee.LOSSY, (f"failOnDataLoss=false: {why}",))
    strict = predict(replace(standing.observed, fail_on_data_loss=True), standing.spark)
    after = strict.next_stop if standing.restart.next_stop is None else None
    is_hidden = strict.stop is not None and strict.outcome is not standing.restart.outcome
    if is_hidden and not _has_sink_what_is_gone(standing):
        because = strict.because
    elif after is not None:
        because = f"{after.subject}: {after.because}"
    else:
        return None
    line = f"failOnDataLoss=false: Spark goes on without an error though {because}"
    return Outlook(Guarantee.LOSSY, (line,), _price_lost_to_kafka(standing))


def _has_sink_what_is_gone(standing: Standing) -> bool:
    """Whether all that Kafka lacks is of the orphan that every sink has: what follows is there from its end on."""
    observed, restart = standing.observed, standing.restart
    gaps = find_kafka_gaps(observed, restart.outcome, restart.batch or 0)
    is_all_kafka = len(gaps) == len(find_ends(standing.plan(standing.planned)))
    is_held = is_in_sinks(observed.checkpoint, observed.sinks)
    return restart.outcome is Outcome.RERUNS and is_all_kafka and is_held and not any(gaps.values())


def _predict_without_files(standing: Standing) -> Outlook | None:
    """Files that are left out: gone since they were noted down, or noted down under numbers that count as read."""
    left_out = unread_files.find_left_out(standing)
    lines = [unread_files.describe_left_out_files(source_id, files) for source_id, files in left_out.items()]
    lines += unread_files.list_never_read(standing)
    if not lines:
        return None
    order = list(find_ends(standing.plan(standing.planned)))
    prices = tuple(
        SourcePrice(
            order.index(source_id), FileOffset.kind, lost_files=tuple(each.file.path for each in files), bound=True
        )
        for source_id, files in left_out.items()
        if source_id in order
    )
    return Outlook(Guarantee.LOSSY, (" and ".join(lines),), prices)


def merge_prices(lost: tuple[SourcePrice, ...], found: tuple[SourcePrice, ...]) -> tuple[SourcePrice, ...]:
    """What is lost beside what else is paid: of a source of files as one price."""
    merged = list(found)
    for each in lost:
        at = next((n for n, price in enumerate(merged) if (price.index, price.kind) == (each.index, each.kind)), None)
        if at is None or not each.lost_files:
            merged.insert(0, each)
            continue
        files = tuple(dict.fromkeys((*merged[at].lost_files, *each.lost_files)))
        merged[at] = replace(merged[at], lost_files=files, bound=True)
    return tuple(merged)


def _warn_of_expiry(standing: Standing) -> str | None:
    """That Kafka may delete what is unread before the query has started, which nobody would tell; None if not."""
    facts, observed = standing.kafka, standing.observed
    if facts is None:
        return None
    is_held = is_in_sinks(observed.checkpoint, observed.sinks)  # then what the orphan reads is there already
    for stand in list_stands(standing.checkpoint):
        begins = stand.start
        if is_held and stand.is_rerun:
            begins = stand.end
        soon = find_expiring(get_topics(begins), facts, now_ms=observed.now_ms, within_ms=START_MS)
        for (topic, partition), room in soon.items():
            return f"{topic}-{partition} may lose what is unread before a start: {room.because}"
    return None


def _predict_without_topics(standing: Standing) -> Outlook | None:
    """Topics that the query reads and that do not exist, by which its start is not stopped."""
    offsets = [offset for stand in list_stands(standing.checkpoint) for offset in (stand.start, stand.end)]
    named = dict.fromkeys(topic for offset in offsets for topic in get_topics(offset))
    facts = standing.kafka
    if facts is None:
        gone = []
    else:
        gone = [topic for topic in named if facts.exists(topic) is False]
    if not gone:
        return None
    line = f"{', '.join(gone)} does not exist: what was unread of it is lost"
    return Outlook(Guarantee.LOSSY, (line,), _price_lost_to_kafka(standing))


def _explain_untold(standing: Standing) -> str | None:
    """That nobody can tell what the next batches would leave out of Kafka; None if somebody can."""
    starts = {**find_beginnings(standing), **find_ends(standing.checkpoint.newest_offsets)}
    read = {topic for each in starts.values() for topic in get_topics(each)}
    facts = standing.kafka
    is_silent = facts is None or any(name.partition("/")[0] in read for name in facts.unknowns)
    is_silent = is_silent or (facts is not None and any(facts.exists(topic) is None for topic in read))
    if not (read and is_silent):
        return None
    return "Spark goes on without an error where records expired, and no Kafka told (--kafka)"


def _describe_suspicion(topic: Suspicion) -> str:
    if topic.is_open:
        return f"{topic.topic} may have been created again: {topic.answer.because}{_SETTLED}"
    return f"{topic.topic} looks as if it was created again: {topic.answer.because}"


def _predict_recreated(standing: Standing) -> Outlook | None:
    """Topics of which the query would leave out the beginning, if they are not those that it has read."""
    found = [each for each in list_suspicions(standing.observed, standing.restart) if each.is_strong and each.costs]
    if not found:
        return None
    lines = tuple(map(_describe_suspicion, found))
    ids = list(find_ends(standing.checkpoint.newest_offsets))
    prices = [
        SourcePrice(ids.index(each.source_id), KafkaOffset.kind, lost=unite(each.gone, each.never_read), bound=True)
        for each in found
    ]
    return Outlook(Guarantee.LOSSY, (" and ".join(lines),), tuple(prices))


def list_assumptions(standing: Standing) -> tuple[str, ...]:
    """What speaks against the word a little, and is taken for an accident; one line each."""
    found = list_suspicions(standing.observed, standing.restart)
    topics = (
        f"{each.topic}, which holds records that are older than the last batch: {each.answer.because}"
        for each in found
        if not each.is_strong and each.costs
    )
    begun = (f"the assumption that {each}" for each in list_begun_by_options(standing.observed))
    others = (
        *standing.list_taken_for_own(),
        *begun,
        *_list_not_told(standing),
        *_list_told_the_same(standing),
        *unread_files.list_unknown(standing),
        *unread_files.list_assumed_ages(standing),
        *unread_files.list_taken_for_others(standing),
        *_list_running_what_it_has(standing),
        *_list_begun_anew(standing),
        *_list_files_untold(standing),
    )
    return (*topics, *others, *list_not_marked(standing))


def _list_not_told(standing: Standing) -> Iterator[str]:
    """Topics of which the broker was asked, and nobody can prove that they are those that were read."""
    for topic, answer in judge_identities(standing.observed, standing.restart):
        is_told = answer.identity is not TopicIdentity.UNKNOWN
        because = answer.assumes if is_told else answer.because
        if because is not None:
            yield f"the assumption that {topic} is the topic that was read: {because}"


def _list_told_the_same(standing: Standing) -> Iterator[str]:
    """The word of a person, where it has settled what nothing else did."""
    if not standing.observed.is_same_topic:
        return
    for each in list_suspicions(replace(standing.observed, is_same_topic=False), standing.restart):
        if each.costs and each.is_open:
            yield f"the word of a person that {each.topic} was not created again, though {each.answer.because}"


def list_not_marked(standing: Standing) -> Iterator[str]:
    """A function need not leave a mark, of a batch without a row or of any: what a sink does not show it may lack."""
    for each, shown in zip(standing.sinks, standing.shown, strict=True):
        done = range(each.shown + 1, each.done + 1)
        if shown is None and each.sink.known and each.may_any_have_rows(done):
            if each.shown == NONE:
                least = "no batch of this query"
            else:
                least = f"batch {each.shown} as its newest"
            yield f"the assumption that no mark was due in {each.sink.location} since: it shows {least}"
        behind = each.names_behind
        if behind:
            named = f"if the query writes there as {name_some(behind)} (--txn-app-id)"
            least = f"it shows batch {max(behind.values())} as its newest"
            yield f"the assumption that no mark was due in {each.sink.location} since, {named}: {least}"
        passed = each.names_passed_over
        if passed:
            yield f"the assumption that the query does not write into {each.sink.location} as {name_some(passed)}"


def _list_running_what_it_has(standing: Standing) -> Iterator[str]:
    """A function that drops a batch unread leaves nothing that its commit could name."""
    batch_id, sinks = standing.planned, standing.observed.sinks
    is_dropped = standing.has_orphan and may_be_skipped(sinks, batch_id) and not is_skipped(sinks, batch_id)
    if is_dropped and find_nothing_to_name(standing.checkpoint, standing.committed, batch_id):
        yield f"the assumption that the function runs batch {batch_id}, which its sinks have: else it has no commit"


def _list_files_untold(standing: Standing) -> Iterator[str]:
    """Sinks whose log was read, and of whose data files nobody knows whether they are there."""
    for each in standing.sinks:
        if each.sink.files_untold is not None:
            yield f"the assumption that the data files of {each.sink.location} are there: {each.sink.files_untold}"


def _list_begun_anew(standing: Standing) -> Iterator[str]:
    """Queries that had stopped writing to a sink before this one began: this checkpoint may have followed theirs."""
    first = standing.plan(0)
    if first is None or first.metadata is None:
        return
    for each in standing.sinks:
        if each.sink.dedupe_key is not DedupeKey.QUERY_ID:
            continue
        for name, at_ms in each.sink.others_at_ms.items():
            if is_query_id(name) and at_ms < first.metadata.batch_timestamp_ms:
                line = f"the assumption that query {name}, which wrote to {each.sink.location} before, is another one"
                yield f"{line}: of a former checkpoint of this one nobody can tell what came between the two"


def _price_lost_to_kafka(standing: Standing) -> tuple[SourcePrice, ...]:
    found = find_kafka_gaps(standing.observed, standing.restart.outcome, standing.restart.batch or 0)
    order = list(find_ends(standing.plan(standing.planned)) or find_beginnings(standing))
    return tuple(
        SourcePrice(order.index(source_id), KafkaOffset.kind, lost=_collect_ranges(gaps), bound=True)
        for source_id, gaps in found.items()
    )


def _collect_ranges(gaps: list[KafkaGap]) -> Ranges:
    found: dict[str, dict[int, tuple[tuple[int, int], ...]]] = {}
    for each in gaps:
        if each.gap in (Gap.EXPIRED, Gap.ADDED_GONE, Gap.ADDED_LATE, Gap.BEYOND_END) and each.first < each.end:
            parts = found.setdefault(each.topic, {})
            parts[each.partition] = (*parts.get(each.partition, ()), (each.first, each.end))
    return found
