"""Checks of the values of a configuration.

Each check takes the path of a key and its value. It returns the value, or raises a `WrongError`
that says what is wrong and where.
"""

import contextlib
import json
import math
from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from pdgd_jax._internal.checks import is_number, is_whole, whole_number
from pdgd_jax._internal.registry import nearest
from pdgd_jax.learners import RATES
from pdgd_jax.sweeps._toml import KeyPath

__all__ = [
    "Rates",
    "WrongError",
    "at",
    "check_plain",
    "delta",
    "one_of",
    "rates",
    "scale",
    "several",
    "show",
    "text_of",
    "whole",
]

Rates = str | tuple[float, float]
T = TypeVar("T")


class WrongError(Exception):
    """Something in a configuration is wrong.

    Attributes:
      path: of the key that is wrong.
      sentence: what is wrong with it.
    """

    def __init__(self, path: KeyPath, sentence: str) -> None:
        super().__init__(sentence)
        self.path = path
        self.sentence = sentence


def several(path: KeyPath, value: object, check: Callable[[KeyPath, object], T]) -> tuple[T, ...]:
    """Check a value, or each of a list of values that must differ."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    if path[-1] == "rates" and len(values) == 2 and all(map(is_number, values)):
        values = [values]  # one pair
    if not values:
        raise WrongError(path, f"{path[-1]} lists nothing; give at least one value.")
    found: list[T] = []
    for entry in values:
        good = check(path, entry)
        if good in found:
            raise WrongError(path, f"{path[-1]} lists {show(entry)} twice.")
        found.append(good)
    return tuple(found)


def whole(least: int, most: int | None = None) -> Callable[[KeyPath, object], int]:
    """A check for whole numbers between two limits."""

    def check(path: KeyPath, value: object) -> int:
        with at(path):
            return whole_number(
                str(path[-1]), value, least, most, accept=is_whole, shown=show, grouping=""
            )

    return check


def delta(path: KeyPath, value: object) -> float:
    """Check a confidence parameter."""
    if not is_number(value) or not 0 < value < 1:
        raise WrongError(
            path, f"delta must be a number strictly between 0 and 1; got {show(value)}."
        )
    return float(value)


def scale(path: KeyPath, value: object) -> float:
    """Check a factor of confidence radii."""
    if not is_number(value) or not math.isfinite(value) or value < 0:
        raise WrongError(
            path, f"confidence_scale must be a finite number, at least 0; got {show(value)}."
        )
    return float(value)


def rates(path: KeyPath, value: object) -> Rates:
    """Check rates: a name or a pair (C, eta)."""
    if isinstance(value, str) and value in RATES:
        return value
    if (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(is_number(entry) and math.isfinite(entry) and entry > 0 for entry in value)
    ):
        return float(value[0]), float(value[1])
    hint = nearest(value, RATES) if isinstance(value, str) else ""
    raise WrongError(
        path,
        f'rates must be "theory", "tuned" or a pair [C, eta] of positive numbers; '
        f"got {show(value)}{hint}.",
    )


def one_of(what: str, known: Collection[str]) -> Callable[[KeyPath, object], str]:
    """A check for one of several names."""

    def check(path: KeyPath, value: object) -> str:
        if not isinstance(value, str) or value not in known:
            hint = nearest(value, known) if isinstance(value, str) else ""
            raise WrongError(
                path, f"unknown {what} {show(value)}{hint}; the {what}s are {', '.join(known)}."
            )
        return value

    return check


def text_of(path: KeyPath, value: object) -> str:
    """Check a text: one line, not empty."""
    if not isinstance(value, str) or not value or not value.isprintable():
        raise WrongError(
            path, f"{path[-1]} must be text on one line, not empty; got {show(value)}."
        )
    return value


def check_plain(path: KeyPath, value: object) -> None:
    """Check that JSON can hold a value."""
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise WrongError(
            path, f"{path[-1]} must be finite numbers, text, or true or false; got {show(value)}."
        ) from None


@contextlib.contextmanager
def at(path: KeyPath) -> Iterator[None]:
    """Turn a `ValueError` of the inner code into a `WrongError` at this key."""
    try:
        yield
    except ValueError as error:
        raise WrongError(path, str(error)) from None


def show(value: object) -> str:
    """The value as JSON, cut if it is long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
