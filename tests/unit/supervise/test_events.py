from __future__ import annotations

from lastgood.supervise import events


def test_events_are_json_lines_with_a_time() -> None:
    event = events.Restarting(at=1795219450.042, attempt=2, of=5, delay_seconds=1.0, is_counted=True)
    assert event.to_json() == {
        "event": "restarting",
        "at": "2026-11-21T00:04:10.042+00:00",
        "attempt": 2,
        "of": 5,
        "delay_seconds": 1.0,
        "is_counted": True,
    }
