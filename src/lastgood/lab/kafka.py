"""A real Kafka broker on this machine: one KRaft node on loopback that ends with its owner."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

from lastgood.errors import ExtraMissingError, LastgoodError, Retry
from lastgood.lab import kraft
from lastgood.lab.ports import LOOPBACK, is_accepting
from lastgood.lab.server import JavaServer
from lastgood.process.child import Child
from lastgood.process.java import Java

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_NOT_YET_LEADER = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART")
_POLL_SECONDS = 0.03
_LOOK_SECONDS = 2.0
_REQUEST_SECONDS = 30.0


class BrokerStartError(LastgoodError):
    """The broker of the lab does not come up."""

    condition = "BROKER_NOT_STARTED"
    exit_code = 68
    retry = Retry.AFTER_CHANGE


class BrokerRequestError(LastgoodError):
    """The broker of the lab refused a request, or did not answer it in time.

    Attributes:
        code: Kafka's name for it, such as `UNKNOWN_TOPIC_OR_PART`.
    """

    condition = "BROKER_REQUEST_FAILED"
    exit_code = 69
    retry = Retry.AFTER_CHANGE

    def __init__(self, sentence: str, *, subject: str, code: str, found: str) -> None:
        super().__init__(sentence, subject=subject, found=f"{code}: {found}")
        self.code = code


class KafkaBroker(JavaServer):
    """One Kafka node with its data in a folder; started, stopped, killed and restarted at will.

    Everything it has accepted survives `stop` and `kill`. Its port stays the same as long as this object lives. Use
    it as a context manager, or call `stop` in the end; should we be killed, the broker ends too.

    Example::

        jars = fetch_jars(["broker"], java=java)
        with KafkaBroker(Path("broker"), java=java, jars=jars["broker"]) as broker:
            broker.create_topic("orders", partitions=2)
    """

    noun = "broker"
    not_started = BrokerStartError
    log_name = "broker"
    grace_seconds = 20.0
    shared = kraft.SHARED_JARS

    def __init__(
        self,
        folder: Path,
        *,
        java: Java,
        jars: Sequence[Path],
        port: int | None = None,
        advertised_port: int | None = None,
        config: Mapping[str, str] | None = None,
        start_seconds: float = 60.0,
    ) -> None:
        """Describe a broker; nothing is started.

        Args:
            folder: For its data, settings and log; created, or used again with the data that it holds.
            java: What it runs on.
            jars: The set `broker` of `fetch_jars`.
            port: Where it listens for clients; a free one if None.
            advertised_port: Where clients are sent to, such as the port of a proxy in front of it.
            config: Kafka's settings beside and above ours.
            start_seconds: How long it may take to be ready.
        """
        if advertised_port:
            spoken_for = {advertised_port}
        else:
            spoken_for = set()
        ports = (port, None, None)
        super().__init__(folder, java=java, jars=jars, ports=ports, beside=spoken_for, start_seconds=start_seconds)
        self._advertised_port = advertised_port
        self._config = dict(config or {})
        self._ports: kraft.Ports | None = None

    @property
    def bootstrap(self) -> str:
        """The `bootstrap.servers` for clients."""
        return f"{LOOPBACK}:{self._advertised_port or self.port}"

    def start(self) -> None:
        """Start the broker and wait until it answers a client; nothing happens if it runs.

        Raises:
            BrokerStartError: it ended, or did not answer in time.
            CommandNotFoundError: there is no such Java.
            ExtraMissingError: there is no confluent-kafka, or no PySpark.
            StorageError: its folder cannot be written.
        """
        _import_confluent("admin")
        super().start()

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until it can be written to.

        Raises:
            BrokerRequestError: it exists, or a setting is not known.
        """
        new_topic = _import_confluent("admin").NewTopic
        topic = new_topic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self._ask(name, "create_topics", [topic])
        self._await(name, "created", lambda: self._writable_partitions(name) == partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic and wait until the broker no longer names it.

        Raises:
            BrokerRequestError: there is no such topic.
        """
        self._ask(name, "delete_topics", [name])
        self._await(name, "deleted", lambda: not self._partitions(name))

    def recreate_topic(
        self,
        name: str,
        partitions: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Delete a topic and create it again, empty and with another id.

        Args:
            name: Of the topic.
            partitions: Of the new one; as many as the old one had if None.
            config: Of the new one; nothing is taken over from the old one.

        Raises:
            BrokerRequestError: there is no such topic.
        """
        before = len(self._partitions(name))
        self.delete_topic(name)
        self.create_topic(name, partitions or before, config)

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions, `total` in all, and wait until they can be written to.

        Raises:
            BrokerRequestError: there is no such topic, or it has as many already.
        """
        self._ask(name, "create_partitions", [_import_confluent("admin").NewPartitions(name, total)])
        self._await(name, "extended", lambda: self._writable_partitions(name) == total)

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Delete, per partition, every record below an offset: at once what retention does in time.

        Raises:
            BrokerRequestError: there is no such partition, or the offset is above its end.
        """
        topic_partition = _import_confluent().TopicPartition
        bounds = [topic_partition(name, partition, offset) for partition, offset in before.items()]
        self._ask(name, "delete_records", bounds)

    def set_topic_config(self, name: str, config: Mapping[str, str | None]) -> None:
        """Change settings of a topic, such as `retention.ms`, and wait until they hold; None: as by default.

        Raises:
            BrokerRequestError: there is no such topic or no such setting.
        """
        admin = _import_confluent("admin")
        verbs = admin.AlterConfigOpType
        entries = []
        for key, value in config.items():
            verb = verbs.DELETE if value is None else verbs.SET
            entries.append(admin.ConfigEntry(key, value, incremental_operation=verb))
        topic = admin.ConfigResource(admin.ResourceType.TOPIC, name, incremental_configs=entries)
        self._ask(name, "incremental_alter_configs", [topic])
        self._await(name, "changed", lambda: self._own_config(name, config) == dict(config))

    def earliest_offsets(self, name: str) -> dict[int, int]:
        """Per partition, the offset of the first record that is still there; the end where there is none.

        Raises:
            BrokerRequestError: the broker does not answer.
        """
        return self._offsets(name, _import_confluent("admin").OffsetSpec.earliest())

    def latest_offsets(self, name: str) -> dict[int, int]:
        """Per partition, the offset that the next record will have; empty if there is no such topic.

        Raises:
            BrokerRequestError: the broker does not answer.
        """
        return self._offsets(name, _import_confluent("admin").OffsetSpec.latest())

    def topic_id(self, name: str) -> str:
        """What tells a topic from an earlier one of the same name.

        Raises:
            BrokerRequestError: there is no such topic.
        """
        described = self._ask(name, "describe_topics", _import_confluent().TopicCollection([name]))
        return str(described[name].topic_id)

    def _offsets(self, name: str, spec: object) -> dict[int, int]:
        topic_partition = _import_confluent().TopicPartition
        wanted = {topic_partition(name, partition): spec for partition in self._partitions(name)}
        if wanted:
            found = self._ask(name, "list_offsets", wanted)
        else:
            found = {}
        return {key.partition: found[key].offset for key in sorted(found)}

    def _own_config(self, name: str, keys: Iterable[str]) -> dict[str, str | None]:
        """What these settings are for this topic alone; None where it has none of its own."""
        admin = _import_confluent("admin")
        topic = admin.ConfigResource(admin.ResourceType.TOPIC, name)
        entries = self._ask(name, "describe_configs", [topic])[topic]
        own = admin.ConfigSource.DYNAMIC_TOPIC_CONFIG.value
        values = {}
        for key in keys:
            is_own = entries[key].source == own
            if is_own:
                values[key] = entries[key].value
            else:
                values[key] = None
        return values

    def _writable_partitions(self, name: str) -> int:
        """How many have a leader that answers: the broker names itself their leader a moment before it is."""
        led = sum(has_leader for has_leader in self._partitions(name).values())
        try:
            return min(led, len(self.latest_offsets(name)))
        except BrokerRequestError as error:
            if error.code not in _NOT_YET_LEADER:
                raise
            return 0

    def _partitions(self, name: str) -> dict[int, bool]:
        """The partitions of a topic, and whether each has a leader; empty if there is no such topic."""
        admin = self._admin(name)
        try:
            topic = admin.list_topics(timeout=_REQUEST_SECONDS).topics.get(name)
        except _import_confluent().KafkaException as error:
            raise _make_refused_error(name, error) from error
        if topic is None:
            return {}
        return {key: value.leader >= 0 for key, value in topic.partitions.items()}

    def _ask(self, name: str, verb: str, argument: object) -> dict[Any, Any]:
        """What the broker answers to one call of its admin client, per key."""
        admin = self._admin(name)  # in a variable: it must live until every future has its result
        try:
            futures = getattr(admin, verb)(argument, request_timeout=_REQUEST_SECONDS)
            return {key: future.result() for key, future in futures.items()}
        except _import_confluent().KafkaException as error:
            raise _make_refused_error(name, error) from error

    def _await(self, name: str, what: str, is_so: Callable[[], bool]) -> None:
        """Wait until the broker shows what its controller has agreed to."""
        deadline = time.monotonic() + _REQUEST_SECONDS
        while not is_so():
            if time.monotonic() > deadline:
                raise BrokerRequestError(
                    f"the topic is not {what} in time",
                    subject=name,
                    code="TIMED_OUT",
                    found=f"no change within {_REQUEST_SECONDS:g} s",
                )
            time.sleep(_POLL_SECONDS)

    def _admin(self, name: str) -> AdminClient:
        if self._ports is None or not self.is_running:
            raise BrokerRequestError(
                "the broker does not run",
                subject=name,
                code="NOT_RUNNING",
                found=f"no process, last log in {self.log}",
            )
        return _make_admin_client(self._ports.admin)

    def _lasting_of(self, ports: tuple[int, ...]) -> tuple[int | None, ...]:
        return (ports[0], None, None)  # the others are our own, so they may change

    def _spawn(self, ports: tuple[int, ...], output: IO[bytes]) -> Child:
        self._ports = kraft.Ports(*ports)
        settings = self._write_settings(self._ports)
        if not (self.folder / "data" / "meta.properties").exists():
            command = ("format", f"--cluster-id={kraft.make_cluster_id(os.urandom(16))}", "--config", str(settings))
            with Child(self._java_command("kafka.tools.StorageTool", *command), output=output) as child:
                ending = child.wait(self._start_seconds)
            if ending is None or not ending.is_success:
                raise self._failure("its data folder cannot be formatted")
        return Child(self._java_command("kafka.Kafka", str(settings)), output=output, grace_seconds=self.grace_seconds)

    def _is_ready(self, _: Child, ports: tuple[int, ...]) -> bool:
        clients, admin, _controller = ports
        return self._answers(admin) and self._answers(clients)

    def _answers(self, port: int) -> bool:
        """True if this very broker serves clients on this port and has taken over all its partitions."""
        if not is_accepting(port):
            return False
        client = _make_admin_client(port)
        try:
            cluster = client.list_topics(timeout=_LOOK_SECONDS)
        except _import_confluent().KafkaException:
            return False  # it accepts connections before it can answer
        partitions = [p for topic in cluster.topics.values() for p in topic.partitions.values()]
        return (
            cluster.cluster_id == self._cluster_id()
            and bool(cluster.brokers)
            and all(partition.leader >= 0 for partition in partitions)
        )

    def _cluster_id(self) -> str | None:
        lines = (self.folder / "data" / "meta.properties").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line).get("cluster.id")

    def _write_settings(self, ports: kraft.Ports) -> Path:
        file = self.folder / "server.properties"
        settings = kraft.make_server_settings(
            ports,
            advertised_port=self._advertised_port,
            data=self.folder / "data",
            config=self._config,
        )
        file.write_text(kraft.format_properties(settings))
        return file


def _import_confluent(module: str | None = None) -> ModuleType:
    """The client library, or a module of it."""
    try:
        return importlib.import_module(f"confluent_kafka.{module}" if module else "confluent_kafka")
    except ImportError as error:
        raise ExtraMissingError(
            extra="kafka",
            module="confluent_kafka",
            needed_for="a Kafka broker on this machine",
        ) from error


def _make_admin_client(port: int) -> AdminClient:
    """A new client, one for each call: none is left to complain when the broker is killed."""
    client: AdminClient = _import_confluent("admin").AdminClient(
        {
            "bootstrap.servers": f"{LOOPBACK}:{port}",
            "log_level": 0,  # else it writes to our standard error that it cannot connect yet
            "allow.auto.create.topics": False,
        },
    )
    return client


def _make_refused_error(name: str, error: Exception) -> BrokerRequestError:
    cause = error.args[0]
    return BrokerRequestError("the broker refuses", subject=name, code=cause.name(), found=cause.str())
