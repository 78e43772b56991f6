"""Options of a builder, of an instance or a learner, checked against its annotations."""

import functools
import inspect
import math
import operator
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax
import numpy as np

__all__ = [
    "brief",
    "kind_of",
    "number_or_word",
    "options_of_builder",
    "takes_text",
    "value_of",
    "written",
]

_SEQUENCES = (list, tuple, Sequence)


def options_of_builder(builder: Callable[..., object]) -> dict[str, Any]:
    """The options of a builder by name, with their defaults."""
    return {
        name: parameter.default
        for name, parameter in inspect.signature(builder).parameters.items()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    }


def kind_of(builder: Callable[..., object], option: str) -> Any:
    """The annotation of an option; `Any` if there is none, or none that can be read."""
    try:
        return typing.get_type_hints(builder).get(option, Any)
    except Exception:  # a user's annotation may name something that does not exist at run time
        return Any


def takes_text(kind: Any) -> bool:
    """Whether an option takes a word of the command line as text, without conversion."""
    return kind is str or any(takes_text(part) for part in _alternatives(kind))


def value_of(
    builder: Callable[..., object], owner: str, option: str, value: object, *, kind: Any = None
) -> object:
    """Convert an option to its annotated type: 1e4 to a whole number, 5 to a sequence of one.

    Values of other types, or without an annotation, are left unchanged.

    Args:
      builder: whose option it is.
      owner: what the error calls it, such as "instance 'grid'".
      option: its name.
      value: its value.
      kind: its type; by default the annotation.

    Raises:
      ValueError: one sentence that names the owner, the option, and what is wrong.
    """
    kind = kind_of(builder, option) if kind is None else kind
    try:
        return _as(kind, value)
    except _UnfitError as error:
        default = options_of_builder(builder).get(option, inspect.Parameter.empty)
        example = (
            "" if default in (None, inspect.Parameter.empty) else f", such as {written(default)}"
        )
        inside = "" if error.culprit is value else f" in {_short(value)}"
        raise ValueError(
            f"{option} of {owner} must be {_in_words(kind)}{example}; "
            f"got {_short(error.culprit)}{inside}."
        ) from None


def number_or_word(kind: Any, default: object) -> Any:
    """The type of an option that is one value, in a file or on a command line.

    Where JAX takes anything like an array, people give a number. Without an annotation the default
    decides. None is no value, but what an option is if it is not given.

    Args:
      kind: the annotation, `Any` if there is none.
      default: the default of the option.
    """
    if kind is Any:
        if isinstance(default, bool | str):
            return type(default)
        kind = int | float if isinstance(default, int | float) else int | float | bool | str
    parts = [part for part in _alternatives(kind) if part is not types.NoneType] or [kind]
    if jax.Array in parts:
        return float
    return functools.reduce(operator.or_, parts)


def written(value: object) -> str:
    """A value in the syntax of the command line."""
    if isinstance(value, list | tuple) and value:
        return ",".join(_inner(entry) for entry in value) + "," * (len(value) == 1)
    return str(value)


def brief(value: object) -> str:
    """A value as people write it: 100 for 100.0."""
    return written(value).removesuffix(".0") if isinstance(value, float) else written(value)


def _inner(value: object) -> str:
    return f"({written(value)})" if isinstance(value, list | tuple) else str(value)


class _UnfitError(Exception):
    """Carries the part of a value that does not fit."""

    def __init__(self, culprit: object) -> None:
        super().__init__(culprit)
        self.culprit = culprit


def _as(kind: Any, value: Any) -> Any:
    if isinstance(value, np.generic) or (hasattr(value, "ndim") and np.ndim(value) == 0):
        value = value.item()  # a scalar of NumPy or JAX
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind in (int, float):
        return _as_number(kind, value)
    if kind is str or kind is bool:
        if not isinstance(value, kind):
            raise _UnfitError(value)
        return value
    if kind is types.NoneType:
        if value is not None:
            raise _UnfitError(value)
        return None
    if origin is Literal:
        if value not in parts:
            raise _UnfitError(value)
        return value
    if alternatives := _alternatives(kind):
        for alternative in alternatives:
            try:
                return _as(alternative, value)
            except _UnfitError:
                continue
        raise _UnfitError(value)
    if (origin or kind) in _SEQUENCES:
        return _as_sequence(parts, value)
    return value


def _as_number(kind: type[int] | type[float], value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _UnfitError(value)
    try:
        finite = math.isfinite(value)
    except OverflowError:  # an integer too large for a float
        finite = kind is int
    if not finite or (kind is int and value != int(value)):
        raise _UnfitError(value)
    return kind(value)


def _as_sequence(parts: tuple[Any, ...], value: Any) -> Any:
    if isinstance(value, str):
        if "," not in value:
            raise _UnfitError(value)
        value = value.split(",")  # not all parts are numbers; find the wrong one
        value = [int(part) if part.strip().isdigit() else part for part in value]
    if isinstance(value, np.ndarray) or (hasattr(value, "tolist") and np.ndim(value)):
        value = value.tolist()
    several = [part for part in parts if part is not Ellipsis]
    if not isinstance(value, Sequence):
        # A sequence with a single number, such as `--sizes 1`.
        if len(several) != 1 or several[0] not in (int, float):
            raise _UnfitError(value)
        value = (value,)
    if len(several) > 1 or (parts and parts[0] == ()):  # a fixed number of typed entries
        if len(value) != len(several):
            raise _UnfitError(value)
        return tuple(_as(part, entry) for part, entry in zip(several, value, strict=True))
    kind = several[0] if several else Any
    return tuple(_as(kind, entry) for entry in value)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    union = typing.get_origin(kind) in (typing.Union, types.UnionType)
    return typing.get_args(kind) if union else ()


_WORDS = {int: "whole number", float: "finite number", str: "text", bool: "True or False"}


def _in_words(kind: Any) -> str:
    if kind in (int, float):
        return f"a {_WORDS[kind]}"
    if kind in (str, bool):
        return _WORDS[kind]
    if kind is types.NoneType:
        return "None"
    if typing.get_origin(kind) is Literal:
        return " or ".join(map(str, typing.get_args(kind)))
    if alternatives := _alternatives(kind):
        return " or ".join(_in_words(part) for part in alternatives)
    several = [part for part in typing.get_args(kind) if part is not Ellipsis]
    if len(several) > 1 and len(set(several)) == 1 and several[0] in (int, float):
        return f"{len(several)} {_WORDS[several[0]]}s"
    if len(several) > 1:
        return f"{len(several)} values ({', '.join(_in_words(part) for part in several)})"
    if several and several[0] in (int, float):
        return f"{_WORDS[several[0]]}s with commas between them"
    inner = f" of {_in_words(several[0])} each" if several else ""
    return f"a sequence{inner}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
