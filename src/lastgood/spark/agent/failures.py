"""Why something failed, as data: every cause with its class, condition and message, through Java and Python alike."""

from __future__ import annotations

import functools
import re
import threading
import traceback
from collections.abc import Callable
from typing import Any

from .events import parse_offsets

TEXT_MAX = 65_536
CAUSES_MAX = 20
_PARAMETER_MAX = 1024
_TRACEBACK = "Traceback (most recent call last):"
_PYTHON_ERROR = re.compile(r"(?P<name>[^\W\d][\w.]*)(?:: (?P<message>.*))?", re.DOTALL)
_SERVER_STACK = "JVM stacktrace:\n"
_JAVA_CAUSE = re.compile(
    r"(?:^|\nCaused by: )(?P<name>[\w$]+(?:\.[\w$]+)+)(?:: (?P<message>.*?))?(?=\n\tat |\n\t\.\.\. |\nCaused by: |\Z)",
    re.DOTALL,
)
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ")
_UNTOLD = "STREAM_FAILED"  # that a query failed: the exception says so by being there


def make_failure(causes: list[dict[str, Any]], condition: str | None = None) -> dict[str, Any]:
    """A failure from its causes, outermost first; `condition` is what Spark itself calls it, if it says so."""
    if not condition:
        known = [cause["condition"] for cause in causes if cause["condition"] not in (None, _UNTOLD)]
        condition = next(reversed(known), None)
    return {
        "condition": condition,
        "message": causes[0]["message"] if causes else None,
        "causes": causes,
        "start_offsets": [],
        "end_offsets": [],
    }


def make_failure_of_error(error: BaseException) -> dict[str, Any]:
    """The failure that a Python exception stands for, with what it holds of Java."""
    causes = _list_python_causes(error)
    return make_failure((causes + _parse_python_cause(causes[-1]))[:CAUSES_MAX])


def make_failure_of_query(exception: Any, query_id: str, condition: str | None) -> dict[str, Any]:
    """The failure of a query of a classic session.

    Args:
        exception: Its StreamingQueryException in Java.
        query_id: Its id.
        condition: What its terminated event says.
    """
    causes = _list_java_causes(exception)
    raised = _foreach_batch_errors.get(query_id)
    if raised is not None and causes[-1]["class_name"].startswith("py4j."):
        causes = causes + raised
    told = make_failure((causes + _parse_python_cause(causes[-1]))[:CAUSES_MAX], condition)
    return {
        **told,
        "start_offsets": parse_offsets(exception.startOffset()),
        "end_offsets": parse_offsets(exception.endOffset()),
    }


def make_failure_as_told(message: str, condition: str | None) -> dict[str, Any]:
    """The failure of a query of which nothing is known but what its terminated event says."""
    cause = _make_cause("java", None, message, condition)
    return make_failure([cause, *_parse_python_cause(cause)], condition)


def find_run(told: dict[str, Any]) -> tuple[str | None, str | None]:
    """Query id and run id of the query whose end is the failure; None where it is something else."""
    for cause in told["causes"]:
        if cause["condition"] == _UNTOLD:
            return cause["message_parameters"].get("id"), cause["message_parameters"].get("runId")
    return None, None


def _make_cause(language: str, name: str | None, message: str | None, condition: str | None) -> dict[str, Any]:
    return {
        "language": language,
        "class_name": name,
        "condition": condition,
        "message": (message or "")[:TEXT_MAX],
        "message_parameters": {},
        "traceback": None,
    }


def _list_java_causes(exception: Any) -> list[dict[str, Any]]:
    causes: list[dict[str, Any]] = []
    while exception is not None and len(causes) < CAUSES_MAX:
        condition = _ask(exception, "getCondition") or _ask(exception, "getErrorClass")
        cause = _make_cause("java", exception.getClass().getName(), exception.getMessage(), condition)
        if condition is not None:
            cause["message_parameters"] = _select_short(_ask(exception, "getMessageParameters"))
        causes.append(cause)
        exception = exception.getCause()
    return causes


def _select_short(parameters: Any) -> dict[str, str]:
    """Those that are values; whole messages of causes are parameters, too, and stand in the message already."""
    known = {str(name): str(value) for name, value in dict(parameters or {}).items() if value is not None}
    return {name: value for name, value in known.items() if len(value) <= _PARAMETER_MAX}


def _ask(exception: Any, method: str) -> Any:
    """What a method of a Java exception answers; None where its class has no such method."""
    from py4j.protocol import Py4JError  # noqa: PLC0415 - a Connect client has no py4j

    try:
        return getattr(exception, method)()
    except Py4JError:
        return None


def _list_python_causes(error: BaseException | None) -> list[dict[str, Any]]:
    causes: list[dict[str, Any]] = []
    while error is not None and len(causes) < CAUSES_MAX:
        java = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
        name = f"{type(error).__module__}.{type(error).__qualname__}".replace("builtins.", "", 1)
        condition = None
        if java is None:
            condition = _find_condition(error)
        cause = _make_cause("python", name, _format_error(error), condition)
        if condition is not None:
            cause["message_parameters"] = _select_short(error.getMessageParameters())  # type: ignore[attr-defined]  # as above
        lines = traceback.format_exception(type(error), error, error.__traceback__, chain=False)
        cause["traceback"] = "".join(lines)[:TEXT_MAX]
        causes.append(cause)
        if java is None:
            inner = _list_server_causes(error)
        else:
            inner = _list_java_causes(java)
        if inner:
            return causes + inner
        following = error.__cause__
        if following is None and not error.__suppress_context__:
            following = error.__context__
        error = following
    return causes


def _format_error(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 - a class of the user's
        return f"({type(broken).__name__} in its __str__)"


def _find_condition(error: BaseException) -> str | None:
    """What Spark Connect calls it."""
    ask = getattr(error, "getCondition", None) or getattr(error, "getErrorClass", None)
    if ask is None or not type(error).__module__.startswith("pyspark."):
        return None
    found: str | None = ask()
    return found or None


def _list_server_causes(error: BaseException) -> list[dict[str, Any]]:
    """The causes in a Spark Connect server, of which it hands over no more than Java's stack trace."""
    if not type(error).__module__.startswith("pyspark.errors.exceptions.connect"):
        return []
    stack = getattr(error, "_stacktrace", None) or _format_error(error).partition(_SERVER_STACK)[2]
    causes = []
    for found in _JAVA_CAUSE.finditer(stack):
        condition = _CONDITION.match(found["message"] or "")
        causes.append(_make_cause("java", found["name"], found["message"], condition and condition[1]))
    return causes[:CAUSES_MAX]


def _parse_python_cause(cause: dict[str, Any]) -> list[dict[str, Any]]:
    """The Python exception whose traceback Spark has put into a message: that of a worker has no other way to us."""
    message: str = cause["message"]
    if cause["language"] != "java" or _TRACEBACK not in message:
        return []
    _, _, told = message.rpartition(_TRACEBACK)
    lines = told.splitlines()[1:]
    first = next((number for number, line in enumerate(lines) if line and not line[0].isspace()), None)
    found = None
    if first is not None:
        found = _PYTHON_ERROR.fullmatch("\n".join(lines[first:]).strip())
    if found is None:
        return []
    inner = _make_cause("python", found["name"], _SQLSTATE.sub("", found["message"] or ""), None)
    inner["traceback"] = _TRACEBACK + told
    return [inner]


_foreach_batch_errors: dict[str, list[dict[str, Any]]] = {}
_ERRORS_MAX = 100
_patching = threading.Lock()
_MARK = f"_watched_by_{__package__}"


def keep_foreach_batch_errors() -> None:
    """Have what functions of `foreachBatch` raise kept for the failure of their query; a second time nothing happens.

    On its way through Java such an exception becomes mere text: that Kafka had lost the data, say, would be known by
    its wording alone.
    """
    from pyspark.sql.utils import ForeachBatchFunction  # noqa: PLC0415 - not in every pyspark

    with _patching:
        if _MARK not in vars(ForeachBatchFunction):
            ForeachBatchFunction.call = _keep_errors(ForeachBatchFunction.call)  # type: ignore[method-assign]
            setattr(ForeachBatchFunction, _MARK, True)


def _keep_errors(call: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(call)
    def kept(function: Any, jdf: Any, batch_id: int) -> None:
        try:
            call(function, jdf, batch_id)
        except Exception as error:
            _keep(jdf, error)
            raise

    return kept


def _keep(jdf: Any, error: Exception) -> None:
    try:
        # Our Java calls run in the thread of the query, whose properties name it.
        query_id = jdf.sparkSession().sparkContext().getLocalProperty("sql.streaming.queryId")
        if query_id is not None:
            while len(_foreach_batch_errors) >= _ERRORS_MAX:
                _foreach_batch_errors.pop(next(iter(_foreach_batch_errors)), None)
            _foreach_batch_errors[query_id] = _list_python_causes(error)
    except Exception:  # noqa: BLE001 - Java may be dying: the text that Spark keeps has to do
        ...
