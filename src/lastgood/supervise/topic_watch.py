"""Whether the topics that a running query reads are still those that it was started on.

Spark goes on at the old offsets of a topic that was deleted and created again, as soon as the new one is longer: it
reads on in the middle, without an error.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from lastgood.checkpoint.layout import METADATA
from lastgood.checkpoint.query import QueryMetadata, parse_query_metadata
from lastgood.errors import LastgoodError
from lastgood.journal.topic_ids import read_topic_ids
from lastgood.observe.broker import open_broker
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.open_query import read_clock_ms
from lastgood.observe.surroundings import ONE_SECONDS
from lastgood.sources.kafka.reader import KafkaUnreachableError
from lastgood.steps.written_file import LOG_BYTES_MAX
from lastgood.storage.reading import Location, open_storage
from lastgood.supervise.events import Event, Noticed

LOOK_SECONDS = 10.0


class TopicWatch:
    """Asks Kafka now and then, in a thread of its own; what nobody can tell changes nothing, and is told once."""

    def __init__(
        self,
        checkpoint: Location,
        evidence: EvidenceOptions,
        *,
        tell: Callable[[Event], None] = lambda _: None,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        """Begin to watch; without a broker to ask there is nothing to do.

        Args:
            checkpoint: Of the query.
            evidence: Where Kafka is.
            tell: Gets what hinders it; called in its thread.
            look_seconds: Pause between two looks.
        """
        self._checkpoint = checkpoint
        self._evidence = evidence
        self._tell = tell
        self._look_seconds = look_seconds
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._run = 0
        self._strayed: str | None = None
        self._thread: threading.Thread | None = None
        if evidence.kafka is not None or evidence.kafka_config is not None:
            self._thread = threading.Thread(target=self._watch, name=f"topics-{checkpoint.name}", daemon=True)
            self._thread.start()

    @property
    def strayed(self) -> str | None:
        """What is so, in one line, if this run reads another topic than it was started on; None if it does not."""
        return self._strayed

    def begin(self) -> None:
        """A new run begins: what was seen before is not of it."""
        with self._lock:
            self._run += 1
            self._strayed = None

    def close(self) -> None:
        """Look no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        is_told = False
        while not self._stop.wait(self._look_seconds):
            run, found = self._run, None
            try:
                found = self._look()
                is_told = False
            except LastgoodError as error:  # whoever starts next meets it again
                if not is_told and not self._stop.is_set():
                    is_told = True
                    self._tell(_make_trouble(self._checkpoint, error))
            with self._lock:
                if run == self._run:
                    self._strayed = found

    def _look(self) -> str | None:
        storage = open_storage(self._checkpoint)
        raw = storage.read(self._checkpoint / METADATA, limit=LOG_BYTES_MAX)
        query = None
        if raw is not None:
            query = parse_query_metadata(raw)
        if not isinstance(query, QueryMetadata):
            return None
        noted = read_topic_ids(storage, self._checkpoint, query.query_id)
        broker = None
        if noted:
            broker = open_broker(self._evidence.kafka, self._evidence.kafka_config)
        if broker is None:
            return None
        facts = broker.ask(list(noted), now_ms=read_clock_ms(), timeout_seconds=ONE_SECONDS)
        now = {name: topic.topic_id for name, topic in facts.topics.items()}
        others = [name for name, before in noted.items() if now.get(name) not in (None, before)]
        silent = [topic.unknown for topic in facts.topics.values() if topic.topic_id is None and topic.unknown]
        if not others and (facts.unknown is not None or silent):  # a topic of which nothing is known hides no other
            raise KafkaUnreachableError("Kafka does not tell", found=facts.unknown or silent[0])
        if not others:
            return None
        return f"{', '.join(others)} was deleted and created again: the query goes on at offsets of other records"


def _make_trouble(checkpoint: Location, error: LastgoodError) -> Noticed:
    if error.found:
        found = f" ({error.found})"
    else:
        found = ""
    sentence = f"whether a topic of {checkpoint} is created anew cannot be seen: {error.sentence}{found}"
    return Noticed(at=time.time(), condition="TOPICS_NOT_WATCHED", sentence=f"{sentence}; it is tried again")
