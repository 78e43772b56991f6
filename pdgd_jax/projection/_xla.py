"""Calls that XLA's CPU backend keeps apart from what surrounds them; elsewhere these only call.

A call with the attribute `inlineable = "false"` is left alone by XLA's inliner of calls, so that
what it returns is computed once. Without it a program computes the same, slower. The attribute is
XLA's own and promised to nobody: a version may drop it, and then only the time changes.
`LOOKED_AT` lists the versions of JAX with which both settings were measured. A test fails with any
other, until somebody has run `python benchmarks/projection.py`, whose rows show both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata

__all__ = ["LOOKED_AT", "Decision", "fence", "known_decision", "unfenced"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

APART = {"inlineable": "false"}

_fences = ContextVar("_fences", default=True)


class Decision(NamedTuple):
    """What was measured with a minor version of JAX."""

    version: str
    reason: str


# Every minor version of JAX that somebody has looked at.
LOOKED_AT = (
    Decision("0.10", "measured: sixteen lanes of a small problem take 0.69 of the time"),
    Decision("0.12", "measured: sixteen lanes of a small problem take 0.62 of the time"),
)


def known_decision(version: str = jax.__version__) -> Decision | None:
    """What was measured with a version of JAX; None if nobody has looked at it.

    Example:
      >>> known_decision("0.12.3").version, known_decision("0.1.75"), known_decision("1.0.0")
      ('0.12', None, None)
    """
    minor = ".".join(version.split(".")[:2])
    return next((each for each in LOOKED_AT if each.version == minor), None)


def fence(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **static: Parameters.kwargs
) -> Result:
    """Call `function`, which must not be a closure, so that its results are computed once.

    XLA's CPU backend would recompute them inside each of their uses, and drops
    `lax.optimization_barrier`, which is meant against that, before it fuses.

    Args:
      function: what to call; traced once for each of its static arguments.
      *arguments: pytrees of arrays.
      **static: hashable, not traced.
    """
    if not _fences.get():
        return function(*arguments, **static)
    named: Any = static
    result: Result = _call(function, **named)(*arguments)
    return result


@contextmanager
def unfenced() -> Iterator[None]:
    """Trace without fences: for the benchmark. What JAX has traced before stays as it is."""
    token = _fences.set(False)
    try:
        yield
    finally:
        _fences.reset(token)


@cache  # by the function, so that `jit` does not trace it for every platform and batch again
def _call(function: Callable[..., Any], **static: Any) -> Callable[..., Any]:
    def plain(*arguments: Any) -> Any:
        return function(*arguments, **static)

    def body(*arguments: Any) -> Any:
        with set_xla_metadata(**dict.fromkeys(APART)):  # it is that of the call alone
            return plain(*arguments)

    plain.__name__ = body.__name__ = function.__name__
    call, default = jax.jit(body), jax.jit(plain)

    def marked(*arguments: Any) -> Any:
        with set_xla_metadata(**APART):
            return call(*arguments)

    return partial(lax.platform_dependent, cpu=marked, default=default)
