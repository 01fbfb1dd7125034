"""The syntax of every module of lastgood, parsed once for all tests that look at it."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import lastgood

SOURCE = Path(lastgood.__file__).parent


@functools.cache
def parse_modules() -> dict[str, ast.Module]:
    """By the path below `src/lastgood/`."""
    return {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text()) for file in sorted(SOURCE.rglob("*.py"))}
