"""The syntax of every module of lastgood, parsed and walked once for all tests that look at it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import lastgood

NodeT = TypeVar("NodeT", bound=ast.AST)
SOURCE = Path(lastgood.__file__).parent


@functools.cache
def parse_modules() -> dict[str, ast.Module]:
    """By the path below `src/lastgood/`."""
    return {file.relative_to(SOURCE).as_posix(): ast.parse(file.read_text()) for file in sorted(SOURCE.rglob("*.py"))}


def nodes(tree: ast.Module, *types: type[NodeT]) -> Iterator[NodeT]:
    """Those of some types."""
    return (node for node in walked(tree) if isinstance(node, types))


@functools.cache
def walked(tree: ast.Module) -> list[ast.AST]:
    """Every node but the commonest, which say nothing."""
    return [node for node in ast.walk(tree) if not isinstance(node, ast.Load | ast.Store | ast.Constant)]
