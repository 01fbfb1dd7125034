"""Sessions, each listened to once, in the way its kind allows."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Protocol

from .queries import Queries
from .writer import Writer

LAST_EVENTS_SECONDS = 0.5
"""How long we wait for the end of a query of which Spark has not told yet."""


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


def make_attachment(session: Any, queries: Queries) -> Attachment:
    """A way to listen to this session."""
    if is_connect(session):
        from .connect import Poller  # noqa: PLC0415 - each kind needs parts of pyspark that the other lacks

        return Poller(session, queries)
    from .classic import Listener  # noqa: PLC0415

    return Listener(session, queries)


def detach(attachments: Sequence[Attachment], writer: Writer, seconds: float) -> None:
    """End them all, and wait for that no longer than `seconds`: Spark may not answer any more."""

    def end() -> tuple[()]:
        for attached in attachments:
            try:
                attached.detach(LAST_EVENTS_SECONDS)
            except Exception as error:  # noqa: BLE001 - Spark may be gone
                writer.report(error)
        return ()

    thread = threading.Thread(target=end, name="lastgood-detach", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # since Python 3.12 none starts at the end of the process: that of the writer has to do
        writer.put(end, 0)
    else:
        thread.join(seconds)


def identify_session(session: Any) -> int:
    """The same number for every Python object that stands for the same session."""
    if is_connect(session):
        return id(session)
    system = session._jvm.java.lang.System  # noqa: SLF001
    return int(system.identityHashCode(session._jsparkSession))  # noqa: SLF001
