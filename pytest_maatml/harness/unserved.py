"""A guess that is worth saying when a program ends without a word: nobody serves its class."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: A program with one of these words in it means to answer, and ended for another reason.
_ANSWERS: Final = re.compile(r"\b(?:serve|stdin|input|socket)\b")
#: What tells an environment from other classes.
_METHODS: Final = frozenset({"reset", "step"})


def unserved(command: Iterable[str], base: Path) -> str:
    """How to serve the class in the command's Python file, with a semicolon before it.

    Nothing where the command names no such file or the file has no class, and where it looks as if
    it read requests. The file is not run.
    """
    for word in command:
        if not word.endswith(".py"):
            continue
        try:
            source = (base / word).read_text(encoding="utf-8")
            tree = ast.parse(source)
        except (OSError, ValueError, SyntaxError):
            return ""
        if _ANSWERS.search(source):
            return ""
        return _advice(word, [node for node in tree.body if isinstance(node, ast.ClassDef)])
    return ""


def _advice(file: str, classes: list[ast.ClassDef]) -> str:
    if not classes:
        return ""
    likely = [found for found in classes if set(_methods(found)) >= _METHODS] or classes
    name = likely[0].name if len(likely) == 1 else "CLASS"
    return (
        f"; {file} seems to define an environment that nobody serves: give "
        f"--maatml-env={file}:{name} in its place, or the command "
        f"`pytest-maatml serve {file}:{name}`"
    )


def _methods(found: ast.ClassDef) -> Iterator[str]:
    return (node.name for node in found.body if isinstance(node, ast.FunctionDef))
