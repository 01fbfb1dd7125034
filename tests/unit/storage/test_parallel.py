from __future__ import annotations

import contextlib
import gc
import math
import threading
import weakref
from types import SimpleNamespace
from typing import cast

import pytest

from lastgood.errors import StorageError
from lastgood.storage.parallel import Deadline, LazyThreads, ask_all, ask_one, open_threads
from lastgood.storage.reading import PARALLEL_LOCAL, PARALLEL_REMOTE, Storage

LONG = 60.0  # never reached in a test that passes


def test_answers_come_in_the_order_of_the_questions() -> None:
    gate = threading.Event()

    def slow() -> str:
        assert gate.wait(LONG)
        return "slow"

    def fast() -> str:
        gate.set()
        return "fast"

    answers = ask_all([slow, fast], parallel=2, deadline=Deadline.after(LONG), subject="x")
    assert [answer.or_raise() for answer in answers] == ["slow", "fast"]


def test_no_question_needs_no_answer() -> None:
    assert ask_all([], parallel=4, deadline=Deadline.after(LONG), subject="x") == []


def test_what_is_answered_at_once_takes_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lastgood.storage.parallel.QUICK_SECONDS", LONG)

    def question() -> int:
        threading.Event().wait(0.005)
        return threading.get_ident()

    threads = ask_all([question] * 12, parallel=12, deadline=Deadline.after(LONG), subject="x")
    assert len({answer.or_raise() for answer in threads}) == 1


def test_no_more_threads_than_allowed_ask_at_once() -> None:
    lock = threading.Lock()
    running, most = 0, 0

    def question() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.005)
        with lock:
            running -= 1

    ask_all([question] * 12, parallel=3, deadline=Deadline.after(LONG), subject="x")
    assert most <= 3


def test_storage_that_refuses_one_question_answers_the_others() -> None:
    refusal = StorageError("no")

    def refused() -> int:
        raise refusal

    one, other = ask_all([refused, lambda: 7], parallel=2, deadline=Deadline.after(LONG), subject="x")
    assert one.error is refusal
    assert other.or_raise() == 7
    with pytest.raises(StorageError, match="no"):
        one.or_raise()


def test_question_that_hangs_is_no_longer_waited_for_and_the_next_are_not_asked() -> None:
    gate = threading.Event()
    asked: list[int] = []

    def hang() -> None:
        asked.append(0)
        gate.wait(LONG)

    answers = ask_all([hang, lambda: asked.append(1)], parallel=1, deadline=Deadline.after(0.05), subject="/mnt/dead")
    gate.set()
    assert [answer.error is not None for answer in answers] == [True, True]
    error = answers[0].error
    assert error is not None
    assert (error.subject, error.found) == ("/mnt/dead", "no answer within 0.05 s")
    for thread in threading.enumerate():
        if thread.name == "parallel":
            thread.join(LONG)
    assert asked == [0]


def test_bug_in_a_question_is_raised_to_who_asked() -> None:
    def broken() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        ask_all([broken, lambda: None], parallel=2, deadline=Deadline.after(LONG), subject="x")
    with pytest.raises(KeyError):
        ask_one(broken, deadline=Deadline.after(LONG), subject="x")


def test_threads_never_keep_the_process_alive() -> None:
    answers = ask_all(
        [lambda: threading.current_thread().daemon], parallel=1, deadline=Deadline.after(LONG), subject="x"
    )
    assert answers[0].value is True


@pytest.mark.parametrize(("quick_seconds", "asked_here"), [(math.inf, 5), (-1.0, 2)])
def test_threads_begin_once_there_is_something_to_wait_for(quick_seconds: float, asked_here: int) -> None:
    with LazyThreads(2, quick_seconds=quick_seconds) as pool:
        answerers = list(pool.map(lambda _: threading.get_ident(), range(5)))
    assert [each == threading.get_ident() for each in answerers] == [True] * asked_here + [False] * (5 - asked_here)


@pytest.mark.parametrize("quick_seconds", [math.inf, -1.0])
def test_what_a_question_raises_is_raised_to_who_takes_its_answer(quick_seconds: float) -> None:
    with LazyThreads(1, quick_seconds=quick_seconds) as pool:
        futures = [pool.submit(int, "none") for _ in range(3)]
        for future in futures:
            with pytest.raises(ValueError, match="none"):
                future.result()


def test_what_a_question_that_failed_has_opened_is_let_go_at_once() -> None:
    class File:
        pass

    opened: list[weakref.ref[File]] = []

    def fail() -> None:
        file = File()
        opened.append(weakref.ref(file))
        raise StorageError("no such thing")

    gc.disable()
    try:
        with LazyThreads(1, quick_seconds=math.inf) as pool, contextlib.suppress(StorageError):
            pool.submit(fail).result()
        assert opened[0]() is None
    finally:
        gc.enable()


def test_a_service_is_asked_by_threads_from_the_beginning() -> None:
    far = cast("Storage", SimpleNamespace(parallel=PARALLEL_REMOTE))
    near = cast("Storage", SimpleNamespace(parallel=PARALLEL_LOCAL))
    with open_threads(far) as there, open_threads(near) as here:
        assert [isinstance(each, LazyThreads) for each in (there, here)] == [False, True]
