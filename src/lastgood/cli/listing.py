"""`lastgood inspect --all`: as many lines as there are batches, none of which is held as a value."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from lastgood.cli.batches import RIGHT, format_cells, list_headings, print_summary, print_unknown
from lastgood.cli.output import make_console, print_nothing_changed
from lastgood.cli.progress import show_batches_read
from lastgood.notes import read_json
from lastgood.observe.batch_json import encode_head, encode_row
from lastgood.observe.evidence import EvidenceOptions
from lastgood.observe.rows import AllRows
from lastgood.observe.shown import SinkComparison
from lastgood.operations.inspect import add_surroundings, inspect_all
from lastgood.settings.target import Target
from lastgood.visible import format_json_line, make_visible

_LINES_AT_ONCE = 500


def show_listing(target: Target, options: EvidenceOptions, output_format: str) -> None:
    """Print every known batch, newest first.

    What is damaged stands before the lines and is known only after them, and an error leaves no half of an answer: so
    the lines are kept until the last is read, packed.
    """
    lines = _Packed()
    with show_batches_read() as progress:
        rows = inspect_all(target, options=options, progress=progress)
        query = add_surroundings(rows.query, options, kafka=False)
        comparison = SinkComparison(query, query.seen.sinks)
        widths = [len(title) for title in list_headings(comparison)]
        for row in chain(comparison.only_in_sinks(), rows):
            if output_format == "json":
                lines.add(format_json_line(encode_row(row, comparison)))
                continue
            told, style = format_cells(row, comparison)
            shown = tuple(map(make_visible, told))
            widths = [max(width, len(cell)) for width, cell in zip(widths, shown, strict=True)]
            lines.add(json.dumps([style, *shown]))
    if output_format == "json":
        _print_json(rows, comparison, lines)
    else:
        _print_text(rows, comparison, lines, widths)


def _print_json(rows: AllRows, comparison: SinkComparison, lines: _Packed) -> None:
    head = format_json_line({**encode_head(rows.query, comparison), "known_batches": len(rows)})
    sys.stdout.write(f'{head[:-1]}, "batches": [')
    for number, line in enumerate(lines):
        sys.stdout.write(f", {line}" if number else line)
    sys.stdout.write("]}\n")
    sys.stdout.flush()


def _print_text(rows: AllRows, comparison: SinkComparison, lines: _Packed, widths: Sequence[int]) -> None:
    out = make_console()
    print_summary(rows.query, out)
    titles = list_headings(comparison)
    out.print(_align(titles, titles, widths), style="bold")
    sys.stdout.flush()
    for line in lines:
        style, *shown = read_json(line)
        text = _align(titles, shown, widths)
        if style is not None and out.is_terminal:
            out.print(text, style=style)
        else:
            sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
    print_unknown(comparison, out)
    print_nothing_changed()


def _align(titles: Sequence[str], shown: Sequence[Any], widths: Sequence[int]) -> str:
    padded = zip(titles, shown, widths, strict=True)
    return "  ".join(_justify(title, cell, width) for title, cell, width in padded)


def _justify(title: str, cell: str, width: int) -> str:
    if title in RIGHT:
        return f"{cell:>{width}}"
    return f"{cell:<{width}}"


class _Packed:
    """Lines of text, of which only the packed bytes are held."""

    def __init__(self) -> None:
        self._packer = zlib.compressobj(1)
        self._pieces: list[bytes] = []
        self._unpacked: list[str] = []

    def add(self, line: str) -> None:
        """Put a line behind the others; it holds no line end."""
        self._unpacked.append(line)
        if len(self._unpacked) == _LINES_AT_ONCE:
            self._pack()

    def __iter__(self) -> Iterator[str]:
        """The lines, once."""
        self._pack()
        self._pieces.append(self._packer.flush())
        unpacker = zlib.decompressobj()
        rest = b""
        for piece in self._pieces:
            *whole, rest = (rest + unpacker.decompress(piece)).split(b"\n")
            yield from (line.decode(errors="surrogatepass") for line in whole)

    def _pack(self) -> None:
        text = "".join(f"{line}\n" for line in self._unpacked)
        self._pieces.append(self._packer.compress(text.encode(errors="surrogatepass")))
        self._unpacked.clear()
