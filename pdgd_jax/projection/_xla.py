"""What XLA's CPU backend is told about the solvers' small operations; elsewhere these only call.

Two attributes of a call say it:

- `inlineable = "false"` keeps the call apart from what surrounds it (`fence`). XLA's inliner of
  calls reads it. It is used with every version: without it a program computes the same, slower.
- `xla_cpu_small_call = "true"` makes the call one piece of machine code (`one_kernel`). This one is
  *not documented*, and `LOOKED_AT` says with which versions of JAX it is used.

The story of the second. Since JAX 0.4.32 the CPU backend starts every operation by itself, which
takes about 0.15 microseconds. The twenty of one block elimination of the Newton solver take longer
to be started than to run, as those of many simulators do (jax-ml/jax#26145). XLA has a remedy for
its own use: the pass `SmallWhileLoopHoistingPass` moves a small loop into a call with this
attribute, and `ThunkEmitter::EmitCallThunk` compiles such a call as one kernel. So a call that
brings the attribute along is compiled like that, too. With JAX 0.10 it took a projection of 5 and
of 10 layers from 276 and 628 microseconds to 214 and 489.

What is wrong with it. It is internal: a version may drop it without a word, and then only the time
changes. The kernel runs on one thread and knows few operations: XLA fails on those that it would
split over threads or give to a library, hence `LARGEST` and the rules of `one_kernel`. And it may
become superfluous: `SmallRegionHoistingPass`, a generalisation of XLA's pass to every small
region, has been proposed since July 2026. When a version of JAX has it, delete `one_kernel`.

What happens with a new version of JAX. The attribute is off there, and a test fails until somebody
has measured both settings and extended `LOOKED_AT`. `NewtonOptions(xla_hints=...)` overrules it.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, ParamSpec, TypeVar

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array

__all__ = ["LOOKED_AT", "Decision", "fence", "known_decision", "one_kernel", "uses_hints"]

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

APART = {"inlineable": "false"}
WHOLE = {**APART, "xla_cpu_small_call": "true"}

# Larger arrays XLA may split over threads, which it cannot do inside of one kernel.
LARGEST = 6000  # bytes


class Decision(NamedTuple):
    """Whether a minor version of JAX uses `xla_cpu_small_call`, and why."""

    version: str
    hints: bool
    reason: str


# Every minor version of JAX that somebody has looked at.
LOOKED_AT = (
    Decision("0.10", True, "measured: a projection takes 0.78 of the time"),
    Decision("0.11", False, "not measured, and off until it is"),
    Decision("0.12", False, "measured: without it 1.00 and 1.01 of the time with it"),
)


def known_decision(version: str = jax.__version__) -> Decision | None:
    """What was decided for a version of JAX; None if nobody has looked at it.

    Example:
      >>> known_decision("0.10.2").hints, known_decision("0.1.75"), known_decision("1.0.0")
      (True, None, None)
    """
    minor = ".".join(version.split(".")[:2])
    return next((each for each in LOOKED_AT if each.version == minor), None)


def uses_hints(asked: bool | None = None) -> bool:
    """Whether `one_kernel` marks its calls: as asked, or if None as decided for this version."""
    if asked is not None:
        return asked
    decision = known_decision()
    return decision is not None and decision.hints


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
    named: Any = static
    result: Result = _call(function, False, **named)(*arguments)
    return result


def one_kernel(
    function: Callable[[Array], Array], argument: Array, hints: bool | None = None
) -> Array:
    """Call `function`, likewise, so that it is compiled as one piece of machine code if small.

    Otherwise the runtime dispatches its operations one by one, which takes longer than they do.
    Only elementwise operations, slices and the like are supported there. The argument must not be
    a constant of the program, which XLA would move into the function, and then fail.

    Args:
      function: what to call.
      argument: its only one.
      hints: as in `uses_hints`; where they are not used this is a plain call.
    """
    small = uses_hints(hints) and argument.size * argument.dtype.itemsize <= LARGEST
    result: Array = _call(function, True)(argument) if small else function(argument)
    return result


@cache  # by the function, so that `jit` does not trace it for every platform and batch again
def _call(function: Callable[..., Any], whole: bool, **static: Any) -> Callable[..., Any]:
    attributes = WHOLE if whole else APART

    def plain(*arguments: Any) -> Any:
        return function(*arguments, **static)

    def body(*arguments: Any) -> Any:
        with set_xla_metadata(**dict.fromkeys(attributes)):  # they are those of the call alone
            return plain(*arguments)

    plain.__name__ = body.__name__ = function.__name__
    call, default = jax.jit(body), jax.jit(plain)

    def marked(*arguments: Any) -> Any:
        with set_xla_metadata(**attributes):
            return call(*arguments)

    return partial(lax.platform_dependent, cpu=marked, default=default)
