"""A console on which what others wrote is text, whatever it holds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console
from rich.segment import Segment
from rich.text import Text

from lastgood.visible import TEXT_MAX, make_lines_visible, make_visible, shorten


class Terminal(Console):
    """Prints texts, tables and panels; the escapes that reach the stream are rich's own."""

    def print(self, *objects: Any, **how: Any) -> None:
        """Print; a text is one line, with a line end in it shown."""
        super().print(*map(self._on_one_line, objects), **how)

    def render_str(self, text: str, **how: Any) -> Text:
        """A string, of which a cell or a line is made."""
        return super().render_str(make_visible(shorten(text)), **how)

    def _on_one_line(self, shown: Any) -> Any:
        if not isinstance(shown, Text):
            return shown
        if len(shown.plain) > TEXT_MAX:
            shown = shown[:TEXT_MAX].append(shorten(shown.plain)[TEXT_MAX:])
        if make_visible(shown.plain) != shown.plain:
            return Text.assemble(
                *((make_visible(text), style or "") for text, style, _ in shown.render(self)), style=shown.style
            )
        return shown

    def _render_buffer(self, buffer: Iterable[Segment]) -> str:
        # The last gate: only what rich marks as control, and the styles that it adds, are escapes.
        return super()._render_buffer(map(_make_visible, buffer))


def _make_visible(segment: Segment) -> Segment:
    if segment.control:
        return segment
    return Segment(make_lines_visible(segment.text), segment.style)
