"""What XLA's CPU backend is told about the solvers' small operations; elsewhere these only call.

Both functions rest on attributes of a call: `inlineable` keeps it apart from what surrounds it, and
`xla_cpu_small_call` makes it one piece of machine code, as XLA does by itself with the loops that
it takes for small.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import jax
from jax import lax
from jax.experimental.xla_metadata import set_xla_metadata
from jaxtyping import Array

__all__ = ["fence", "one_kernel"]

APART = {"inlineable": "false"}
WHOLE = {**APART, "xla_cpu_small_call": "true"}

# The second attribute is not documented: used only with the versions that it was tried with, and
# on arrays too small for XLA to split over threads, which it cannot do there.
KNOWN = jax.__version__.startswith("0.10.")
LARGEST = 6000  # bytes


def fence(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call `function`, which must not be a closure, so that its results are computed once.

    XLA's CPU backend would recompute them inside each of their uses, and drops
    `lax.optimization_barrier`, which is meant against that, before it fuses.
    """
    return _call(function, False)(*arguments)


def one_kernel(function: Callable[[Array], Array], argument: Array) -> Array:
    """Call `function`, likewise, so that it is compiled as one piece of machine code if small.

    Otherwise the runtime dispatches its operations one by one, which takes longer than they do.
    Only elementwise operations, slices and the like are supported there. The argument must not be
    a constant of the program, which XLA would move into the function, and then fail.
    """
    small = KNOWN and argument.size * argument.dtype.itemsize <= LARGEST
    result: Array = _call(function, True)(argument) if small else function(argument)
    return result


@cache  # by the function, so that `jit` does not trace it for every platform and batch again
def _call(function: Callable[..., Any], whole: bool) -> Callable[..., Any]:
    attributes = WHOLE if whole else APART

    def body(*arguments: Any) -> Any:
        with set_xla_metadata(**dict.fromkeys(attributes)):  # they are those of the call alone
            return function(*arguments)

    body.__name__ = function.__name__
    call, default = jax.jit(body), jax.jit(function)

    def marked(*arguments: Any) -> Any:
        with set_xla_metadata(**attributes):
            return call(*arguments)

    return partial(lax.platform_dependent, cpu=marked, default=default)
