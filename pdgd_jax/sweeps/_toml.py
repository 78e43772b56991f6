"""Where in the text of a TOML file something stands, for errors that begin with the line."""

import re
import tomllib
from typing import Any

__all__ = ["KeyPath", "line_of", "syntax_sentence"]

KeyPath = tuple[str | int, ...]  # of a key: ("instance", 0, "sizes")


def syntax_sentence(file: str, text: str, message: str) -> str:
    """`Invalid value (at line 3, column 5)` as a sentence that begins with the place."""
    at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    what = message[: at.start()] if at else message
    if at and at[1] and what == "Cannot overwrite a value":
        return f"{file}, line {at[1]}: this key is set already; a key is set once."
    if at and at[1]:
        return f"{file}, line {at[1]}: {what} at column {at[2]}; this is not TOML."
    return f"{file}, line {len(text.splitlines())}: {what} at the end; this is not TOML."


def line_of(text: str, path: KeyPath) -> int:
    """The line on which a key, or else the table that it is missing from, begins.

    The first lines of the text that are TOML and hold the key end with it; it begins after the
    longest part of them that is TOML too.
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
