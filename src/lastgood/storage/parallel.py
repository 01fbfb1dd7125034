"""Many questions to a storage at once, and an end to the waiting.

It knows nothing of what is asked.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, as_completed
from typing import Any, Generic, TypeVar

from lastgood.errors import StorageError
from lastgood.frozen import dataclass
from lastgood.storage.reading import PARALLEL_REMOTE, Storage

AskedT = TypeVar("AskedT")
AnswerT = TypeVar("AnswerT")
QUICK_SECONDS = 0.001
"""A question that takes less is answered from memory, or nearly so."""
_SLOW_IN_A_ROW = 2
_QUICK_SECONDS_MAX = 0.1
"""Of many questions the rest goes to several threads all the same."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """The moment at which an answer is no longer waited for. Make one with `Deadline.after`."""

    seconds: float
    """How long it was when it was set."""
    monotonic: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """The moment in so many seconds."""
        return cls(seconds, time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left; 0 when it has passed."""
        return max(0.0, self.monotonic - time.monotonic())


class LazyThreads(ThreadPoolExecutor):
    """Threads that begin once there is something to wait for.

    A file of a local disk is read sooner than a thread has begun. So whoever asks reads it, until two questions in a
    row have taken their time, as on a network share: those that come then go to threads.
    """

    def __init__(self, count: int, *, quick_seconds: float) -> None:
        """Threads for `count` questions at once.

        Args:
            count: How many threads at most.
            quick_seconds: A question that takes less is not worth a thread.
        """
        super().__init__(count, thread_name_prefix="lazy")
        self._quick_seconds = quick_seconds
        self._slow = 0

    def submit(self, fn: Callable[..., AnswerT], /, *args: Any, **kwargs: Any) -> Future[AnswerT]:
        """The answer, or who gives it."""
        if self._slow >= _SLOW_IN_A_ROW:
            return super().submit(fn, *args, **kwargs)
        began = time.perf_counter()
        try:
            answer = fn(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - it is raised to who takes the answer
            # No name is given to the future here: the error holds, by its traceback, all that is named on its way, and
            # a future that holds the error would keep open what a question has opened.
            return _make_failed(error)
        finally:
            self._note(time.perf_counter() - began)
        return _make_answered(answer)

    def _note(self, seconds: float) -> None:
        if seconds > self._quick_seconds:
            self._slow += 1
        else:
            self._slow = 0


def _make_answered(answer: AnswerT) -> Future[AnswerT]:
    future: Future[AnswerT] = Future()
    future.set_result(answer)
    return future


def _make_failed(error: Exception) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(error)
    return future


def open_threads(storage: Storage, count: int | None = None, *, quick_seconds: float = QUICK_SECONDS) -> Executor:
    """Threads for questions to one storage; they begin where there is something to wait for, as with a service.

    Args:
        storage: Who is asked.
        count: How many threads at most; None: as many as pay off there.
        quick_seconds: See `LazyThreads`.
    """
    if storage.parallel >= PARALLEL_REMOTE:
        return ThreadPoolExecutor(count or storage.parallel, thread_name_prefix="storage")
    return LazyThreads(count or storage.parallel, quick_seconds=quick_seconds)


def take_as_they_come(pool: Executor, ask: Callable[[AskedT], AnswerT], about: Iterable[AskedT]) -> Iterator[AnswerT]:
    """The answers, those first that come first; of `LazyThreads` that ask by themselves, one before the next is asked.

    Args:
        pool: From `open_threads`.
        ask: Asks one of them.
        about: What is asked about.

    Raises:
        Exception: whatever a question raises.
    """
    waiting = []
    for each in about:
        answer = pool.submit(ask, each)
        if answer.done():
            yield answer.result()
        else:
            waiting.append(answer)
    yield from (answer.result() for answer in as_completed(waiting))


@dataclass(frozen=True, slots=True)
class Answer(Generic[AnswerT]):
    """What came back on one question: a value, or why there is none."""

    value: AnswerT | None = None
    error: StorageError | None = None
    """None if there was an answer, be it a value or that there is nothing."""

    def or_raise(self) -> AnswerT | None:
        """The value.

        Raises:
            StorageError: there was no answer.
        """
        if self.error is not None:
            raise self.error
        return self.value


def ask_all(
    questions: Sequence[Callable[[], AnswerT]], *, parallel: int, deadline: Deadline, subject: str
) -> list[Answer[AnswerT]]:
    """Ask each question in one of some threads; give their answers, in order, when all are in or time is up.

    A question that hangs, as on a dead network share, keeps its thread; nobody waits for that, not even at exit.

    Args:
        questions: They raise StorageError where the storage does not answer.
        parallel: How many threads at most.
        deadline: When to stop waiting.
        subject: What an error is about that says that time is up.

    Raises:
        Exception: whatever else a question raises.
    """
    run = _Run(questions)
    threads = min(parallel, len(questions))
    if threads:
        run.begin(1)
        # What a local disk answers has come before a second thread has begun.
        if not run.is_quick(deadline):
            run.begin(threads - 1)
            run.is_done.wait(deadline.left)
    return run.answers(
        StorageError(
            "the storage does not answer in time",
            subject=subject,
            found=f"no answer within {deadline.seconds:g} s",
        )
    )


def ask_one(question: Callable[[], AnswerT], *, deadline: Deadline, subject: str) -> AnswerT | None:
    """Ask one question; see `ask_all`.

    Raises:
        StorageError: there is no answer, or not in time.
    """
    return ask_all([question], parallel=1, deadline=deadline, subject=subject)[0].or_raise()


def ask_while_it_goes_on(
    question: Callable[[Callable[[], None]], AnswerT], *, silence_seconds: float, subject: str
) -> AnswerT:
    """Ask one question that may take long, as long as there is a sign that it goes on.

    Args:
        question: Takes what it calls whenever it has come further.
        silence_seconds: How long to wait for a sign, or for the answer.
        subject: What the error is about that says that there was none.

    Raises:
        StorageError: nothing was heard of it for so long; its thread is left to itself.
        BaseException: whatever the question raises.
    """
    changed = threading.Event()
    answers: list[tuple[AnswerT | None, BaseException | None]] = []

    def work() -> None:
        try:
            answers.append((question(changed.set), None))
        except BaseException as error:  # noqa: BLE001 - it is raised to who asked
            answers.append((None, error))
        changed.set()

    threading.Thread(target=work, name="patient", daemon=True).start()
    while not answers:
        if not changed.wait(silence_seconds):
            raise StorageError(
                "the storage does not answer in time", subject=subject, found=f"nothing for {silence_seconds:g} s"
            )
        changed.clear()
    value, error = answers[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


class _Run(Generic[AnswerT]):
    def __init__(self, questions: Sequence[Callable[[], AnswerT]]) -> None:
        self._questions = questions
        self._answers: dict[int, Answer[AnswerT]] = {}
        self._next = 0
        self._failure: Exception | None = None
        self._lock = threading.Lock()
        self.is_done = threading.Event()

    def begin(self, threads: int) -> None:
        """Let so many more threads answer."""
        for _ in range(threads):
            threading.Thread(target=self.work, name="parallel", daemon=True).start()

    def is_quick(self, deadline: Deadline) -> bool:
        """Wait for the answers of one thread; False, with some of them left, once they no longer come quickly."""
        seconds, before = QUICK_SECONDS, 0
        while not self.is_done.wait(min(seconds, deadline.left)):
            answered = len(self._answers)
            if (answered - before) * QUICK_SECONDS < seconds or seconds > _QUICK_SECONDS_MAX:
                return False
            seconds, before = 2 * seconds, answered
        return True

    def work(self) -> None:
        """Answer questions until there are none left, or nobody waits any more."""
        while (number := self._take()) is not None:
            answer: Answer[AnswerT] = Answer()
            failure = None
            try:
                answer = Answer(self._questions[number]())
            except StorageError as error:
                answer = Answer(error=error)
            except Exception as error:  # noqa: BLE001 - it is raised to who asked
                failure = error
            self._put(number, answer, failure)

    def answers(self, late: StorageError) -> list[Answer[AnswerT]]:
        with self._lock:
            self._next = len(self._questions)
            if self._failure is not None:
                raise self._failure
            return [self._answers.get(number, Answer(error=late)) for number in range(len(self._questions))]

    def _take(self) -> int | None:
        with self._lock:
            number = self._next
            self._next += 1
        return number if number < len(self._questions) else None

    def _put(self, number: int, answer: Answer[AnswerT], failure: Exception | None) -> None:
        with self._lock:
            self._answers[number] = answer
            self._failure = self._failure or failure
            if self._failure or len(self._answers) == len(self._questions):
                self._next = len(self._questions)
                self.is_done.set()
