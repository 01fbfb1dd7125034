from __future__ import annotations

import contextlib
import http.client
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lastgood.testing.network import Proxy

CONTENT = b"x" * 5000
AT_ONCE = 8
TOGETHER = threading.Barrier(AT_ONCE)
"""Who asks for `/together` is answered once all the others have asked."""


class Server(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.path == "/together":
            TOGETHER.wait(20)
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.end_headers()
        self.wfile.write(CONTENT)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def port() -> Iterator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        serving.start()
        yield server.server_address[1]
        server.shutdown()
        serving.join()


def ask(port: int, times: int = 1, path: str = "/") -> bytes:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        for _ in range(times):
            connection.request("GET", path)
            with connection.getresponse() as response:
                content = response.read()
    return content


def test_requests_in_a_row_are_counted_and_pass_unchanged(port: int) -> None:
    with Proxy(port) as proxy:
        assert ask(proxy.port, 3) == CONTENT
        assert ask(proxy.port) == CONTENT
        assert (proxy.requests, proxy.round_trips) == (4, 4)
        proxy.forget()
        assert (proxy.requests, proxy.round_trips) == (0, 0)


def test_requests_at_the_same_time_are_one_round_trip(port: int) -> None:
    with Proxy(port) as proxy, ThreadPoolExecutor(AT_ONCE) as pool:
        assert set(pool.map(lambda _: ask(proxy.port, path="/together"), range(AT_ONCE))) == {CONTENT}
        assert (proxy.requests, proxy.round_trips) == (AT_ONCE, 1)


@pytest.mark.parametrize("length", [0, 10, 2000])
def test_an_answer_is_cut_where_it_is_to_be(length: int, port: int) -> None:
    with Proxy(port, cut_after=length) as proxy, pytest.raises((http.client.HTTPException, ConnectionError)):
        ask(proxy.port)


def test_nobody_answers_when_it_is_over(port: int) -> None:
    with Proxy(port) as proxy:
        assert ask(proxy.port) == CONTENT
    with pytest.raises(ConnectionRefusedError):
        ask(proxy.port)


def test_each_request_is_shown_before_it_is_passed_on(port: int) -> None:
    seen: list[bytes] = []
    with Proxy(port, on_request=seen.append) as proxy:
        ask(proxy.port, times=3)
    assert [request.partition(b"\r\n")[0] for request in seen] == [b"GET / HTTP/1.1"] * 3
