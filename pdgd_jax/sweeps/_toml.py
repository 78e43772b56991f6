"""Finds the line of a key in a TOML file, for errors that begin with the line."""

import re
import tomllib
from typing import Any

__all__ = ["KeyPath", "line_of", "syntax_sentence"]

KeyPath = tuple[str | int, ...]  # such as ("instance", 0, "sizes")


def syntax_sentence(file: str, text: str, message: str) -> str:
    """Turn `Invalid value (at line 3, column 5)` into a sentence that begins with the place."""
    at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    what = message[: at.start()] if at else message
    if at and at[1] and what == "Cannot overwrite a value":
        return f"{file}, line {at[1]}: this key is set already; a key is set once."
    if at and at[1]:
        return f"{file}, line {at[1]}: {what} at column {at[2]}; this is not TOML."
    return f"{file}, line {len(text.splitlines())}: {what} at the end; this is not TOML."


def line_of(text: str, path: KeyPath) -> int:
    """The line on which a key begins, or the table that it is missing from.

    The shortest prefix of the text that is valid TOML and holds the key ends with the key. The key
    begins after the longest valid prefix without it.
    """
    lines = text.splitlines(keepends=True)
    whole = tomllib.loads(text)
    while path and not _holds(whole, path):
        path = path[:-1]
    if not path:
        return 1
    before = 0
    for end in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        if _holds(table, path):
            break
        before = end
    return before + 1


def _holds(table: Any, path: KeyPath) -> bool:
    try:
        for key in path:
            table = table[key]
    except (KeyError, IndexError, TypeError):
        return False
    return True
