"""Sessions, each listened to once, in the way its kind allows."""

from __future__ import annotations

from typing import Any, Protocol

from .queries import Queries


class Attachment(Protocol):
    """A session that is listened to."""

    def attach(self) -> None:
        """Begin."""

    def add(self, query: Any, checkpoint: str | None) -> None:
        """A query of the session has started; where that is known already, nothing happens."""

    def detach(self, seconds: float) -> None:
        """Hand on what has happened and has not been told yet, then end; may wait for Spark as long as that."""


def is_connect(session: Any) -> bool:
    """Whether it is a session of Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def attachment(session: Any, queries: Queries) -> Attachment:
    """A way to listen to this session."""
    if is_connect(session):
        from .connect import Poller  # noqa: PLC0415 - each kind needs parts of pyspark that the other lacks

        return Poller(session, queries)
    from .classic import Listener  # noqa: PLC0415

    return Listener(session, queries)


def identity(session: Any) -> int:
    """The same number for every Python object that stands for the same session."""
    if is_connect(session):
        return id(session)
    system = session._jvm.java.lang.System  # noqa: SLF001
    return int(system.identityHashCode(session._jsparkSession))  # noqa: SLF001
