"""Checks of user input, on the host. Each error is one sentence that says what is wrong where."""

from collections.abc import Callable, Sequence
from typing import Any, SupportsFloat, TypeGuard

import jax
import numpy as np

from pdgd_jax._internal.typing import NDArray

__all__ = [
    "LARGEST_KEY",
    "MOST_EPISODES",
    "are_counts",
    "check_sums",
    "first_place",
    "fraction",
    "is_integer",
    "is_number",
    "is_positive",
    "is_whole",
    "place",
    "rounding_of_sums",
    "whole_number",
]

# Episodes and seeds are counted in 32 bits. Without float64, JAX limits keys to 32 bits as well.
MOST_EPISODES = 2**31 - 1
LARGEST_KEY = 2**32 - 1

# Numbers


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a Python number, and not True or False."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is of an integer type, and not True or False."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int | float]:
    """Whether a value is one whole number: 3, 1e5, or an array that holds such a number."""
    if isinstance(value, int):
        return not isinstance(value, bool)  # perhaps too large for an array
    if not isinstance(value, float | np.generic | np.ndarray | jax.Array):
        return False
    array = np.asarray(value)
    if array.ndim or array.dtype.kind not in "iuf":
        return False
    return bool(np.isfinite(array) and array == np.trunc(array))


def are_counts(value: object) -> bool:
    """Whether a value is an integer of at least 1, or an array of such."""
    array = np.asarray(value)
    return array.dtype.kind in "iu" and bool(np.all(array >= 1))


def is_positive(value: object) -> bool:
    """Whether a value is a number, or an array of numbers, all of them positive and finite."""
    array = np.asarray(value)
    return array.dtype.kind in "iuf" and bool(np.all(np.isfinite(array) & (array > 0)))


def whole_number(
    name: str,
    value: object,
    least: int = 1,
    most: int | None = None,
    *,
    accept: Callable[[object], bool] = is_integer,
    what: str = "a whole number",
    shown: Callable[[object], str] = repr,
    grouping: str = ",",
) -> int:
    """Return `value` as an int, or raise unless it is a whole number from `least` to `most`.

    Args:
      name: the name of the value, for the error.
      value: the number.
      least: the smallest value allowed.
      most: the largest value allowed; None for no limit.
      accept: `is_integer`, or `is_whole` to accept a float such as 1e5 too.
      what: what the value must be, for the error.
      shown: formats the value, for the error.
      grouping: the thousands separator of `most`.

    Raises:
      ValueError: one sentence.

    Example:
      >>> whole_number("seeds", 1e5, accept=is_whole)
      100000
      >>> whole_number("seeds", 0)
      Traceback (most recent call last):
      ...
      ValueError: seeds must be a whole number, at least 1; got 0.
    """
    number: Any = value
    if not accept(value) or number < least or (most is not None and number > most):
        bounds = f"at least {least}" if most is None else f"from {least} to {most:{grouping}}"
        raise ValueError(f"{name} must be {what}, {bounds}; got {shown(value)}.")
    return int(number)


def fraction(name: str, value: SupportsFloat) -> float:
    """Return `value` as a float, or raise unless it lies in [0, 1]."""
    if not 0 <= float(value) <= 1:
        raise ValueError(f"{name} must lie in [0, 1]; got {value}.")
    return float(value)


# Arrays over layers, states and actions


def first_place(wrong: NDArray | np.bool) -> tuple[int, ...] | None:
    """The index of the first entry that is true; None if none is."""
    return tuple(int(i) for i in np.argwhere(wrong)[0]) if wrong.any() else None


def place(index: Sequence[int], first: str = "layer") -> str:
    """An index in words.

    Example:
      >>> place((1, 0)), place((1, 0, 2), "step"), place((1, 0, 2, 3))
      ('layer 1, state 0', 'step 1, state 0, action 2', 'layer 1, state 0, action 2 to state 3')
    """
    axes = (first, "state", "action")[: len(index)]
    words = ", ".join(f"{axis} {i}" for axis, i in zip(axes, index[:3], strict=True))
    return f"{words} to state {index[3]}" if len(index) > 3 else words


def rounding_of_sums(values: NDArray) -> float:
    """How far a row may be from 1: rounding, and the loss when values are printed and read back."""
    return 1e-5 if values.dtype == np.float32 else 1e-9


def check_sums(
    name: str,
    rows: NDArray,
    tolerance: float,
    where: NDArray | np.bool | bool = True,
    *,
    over: str = "",
    must: str = "it must sum to 1",
    first: str = "layer",
) -> None:
    """Raise if a row does not sum to 1 over the last axis.

    Args:
      name: the name of the rows, for the error.
      rows: the axes before the last are those that `place` names.
      tolerance: how far from 1 a sum may be.
      where: which rows to check.
      over: what was summed over, for the error.
      must: the end of the error.
      first: the name of the first axis.

    Raises:
      ValueError: one sentence that names the first wrong row.
    """
    total = np.asarray(rows.sum(-1))
    wrong = first_place(~(np.abs(total - 1) <= tolerance) & np.asarray(where))
    if wrong is not None:
        at = f" of {place(wrong, first)}" if wrong else ""
        raise ValueError(f"{name}{at} sums to {total[wrong]:.9g}{over}; {must}.")
