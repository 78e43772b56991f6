"""Calls that XLA's CPU backend does not inline; on other backends they are plain calls.

XLA's call inliner skips a call with the attribute `inlineable = "false"`, so that its result is
computed once. Without the attribute a program computes the same, but more slowly. The attribute is
undocumented: a version of XLA may drop it, and then only the time changes. `LOOKED_AT` lists the
versions of JAX with which both settings were measured. A test fails with any other version until
someone runs `python benchmarks/projection.py`, which has a row for each setting.
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
    """The measurement with a minor version of JAX."""

    version: str
    reason: str


# Every minor version of JAX that was measured.
LOOKED_AT = (
    Decision("0.10", "measured: sixteen lanes of a small problem take 0.69 of the time"),
    Decision("0.12", "measured: sixteen lanes of a small problem take 0.62 of the time"),
)


def known_decision(version: str = jax.__version__) -> Decision | None:
    """The measurement with a version of JAX; None if there is none.

    Example:
      >>> known_decision("0.12.3").version, known_decision("0.1.75"), known_decision("1.0.0")
      ('0.12', None, None)
    """
    minor = ".".join(version.split(".")[:2])
    return next((each for each in LOOKED_AT if each.version == minor), None)


def fence(
    function: Callable[Parameters, Result], *arguments: Parameters.args, **static: Parameters.kwargs
) -> Result:
    """Call `function` so that its results are computed once; it must not be a closure.

    XLA's CPU backend would recompute the results wherever they are used. `lax.optimization_barrier`
    should prevent that, but the backend drops it before fusion.

    Args:
      function: the function, traced once for each value of its static arguments.
      *arguments: pytrees of arrays.
      **static: hashable arguments that are not traced.
    """
    if not _fences.get():
        return function(*arguments, **static)
    named: Any = static
    result: Result = _call(function, **named)(*arguments)
    return result


@contextmanager
def unfenced() -> Iterator[None]:
    """Trace without fences, for the benchmark. Programs traced earlier keep theirs."""
    token = _fences.set(False)
    try:
        yield
    finally:
        _fences.reset(token)


@cache  # one jitted function each, so that `jit` does not trace again for platforms and batches
def _call(function: Callable[..., Any], **static: Any) -> Callable[..., Any]:
    def plain(*arguments: Any) -> Any:
        return function(*arguments, **static)

    def body(*arguments: Any) -> Any:
        with set_xla_metadata(**dict.fromkeys(APART)):  # only the call has the attribute
            return plain(*arguments)

    plain.__name__ = body.__name__ = function.__name__
    call, default = jax.jit(body), jax.jit(plain)

    def marked(*arguments: Any) -> Any:
        with set_xla_metadata(**APART):
            return call(*arguments)

    return partial(lax.platform_dependent, cpu=marked, default=default)
