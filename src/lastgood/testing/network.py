"""A network that misbehaves: a proxy in front of a real server that delays, counts and cuts."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Self

_CHUNK_BYTES = 64 * 1024


class Proxy:
    """Passes TCP connections on to a server of this machine. Use it as a context manager.

    A request begins with the first bytes of a client since the server answered last: so it is with HTTP/1.1, whose
    clients wait for each answer.
    """

    def __init__(
        self,
        port: int,
        *,
        seconds: float = 0.0,
        cut_after: int | None = None,
        on_request: Callable[[bytes], None] = lambda _: None,
    ) -> None:
        """Stand in front of a port on loopback.

        Args:
            port: Of the server.
            seconds: How long each request is held back, and on until none has come for as long: requests that do not
                wait for each other pass together, however long a busy client takes to send them.
            cut_after: Close each connection after so many bytes of the server; None: never.
            on_request: Gets the begin of each request, which is passed on once this returns.
        """
        self._on_request = on_request
        self._target = ("127.0.0.1", port)
        self._seconds = seconds
        self.cut_after = cut_after
        """As given; what is set here holds for connections that are made from then on."""
        self._lock = threading.Lock()
        self._wave = _Wave()
        self._open: set[socket.socket] = set()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self._port: int = self._listener.getsockname()[1]
        self.requests = 0
        """How many there were."""
        self.round_trips = 0
        """The longest chain of requests of which each began after the answer to the one before it."""

    @property
    def port(self) -> int:
        """Where clients connect."""
        return self._port

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, name="proxy", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            left = [self._listener, *self._open]
        for each in left:
            _close(each)

    def forget(self) -> None:
        """Count from nothing."""
        with self._lock:
            self.requests = self.round_trips = 0

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed: it is over
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), socket.create_connection(self._target) as server, client:
            with self._lock:
                self._open |= {client, server}
            conversation = _Conversation()
            answers = threading.Thread(target=self._answers, args=(server, client, conversation), daemon=True)
            answers.start()
            while piece := client.recv(_CHUNK_BYTES):
                if conversation.is_answered:
                    conversation.is_answered = False
                    self._hold(conversation)
                    self._on_request(piece)
                server.sendall(piece)
            _close(server)
            answers.join()
            with self._lock:
                self._open -= {client, server}

    def _hold(self, conversation: _Conversation) -> None:
        """Count a request, and keep it until the others have come that are sent at the same time."""
        with self._lock:
            self.requests += 1
            conversation.chain = self.round_trips + 1
            if self._wave.is_over:
                self._wave = _Wave()
            wave = self._wave
            wave.rises_until = time.monotonic() + self._seconds
        while not wave.is_over:
            time.sleep(max(0.0, wave.rises_until - time.monotonic()))
            with self._lock:
                wave.is_over = time.monotonic() >= wave.rises_until

    def _answers(self, server: socket.socket, client: socket.socket, conversation: _Conversation) -> None:
        left = self.cut_after
        with contextlib.suppress(OSError):
            while piece := server.recv(_CHUNK_BYTES):
                if left is not None:
                    piece = piece[:left]
                if left is None:
                    left = None
                else:
                    left = left - len(piece)
                with self._lock:
                    self.round_trips = max(self.round_trips, conversation.chain)
                conversation.is_answered = True
                client.sendall(piece)
                if left == 0:
                    break
        _close(client)


class _Wave:
    """Requests that are held back together."""

    def __init__(self) -> None:
        self.is_over = False
        self.rises_until = 0.0


class _Conversation:
    """One connection."""

    def __init__(self) -> None:
        self.is_answered = True
        self.chain = 0


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
