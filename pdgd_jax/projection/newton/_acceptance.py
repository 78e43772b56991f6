r"""When a point is close enough to the projection to be returned.

With $r = F q - b$ and an error $z$ of the potentials, $\|q - q^*\|^2 \le r^\top z$. In a state with
outflow, $z$ exceeds a mean over the next states by at most the distance. If all states have
outflow, $|z| \le L \|q - q^*\|$, and the distance is at most $L \|r\|_1$.

But a state with hardly any inflow and no outflow is within the tolerance for every potential that
is low enough. The distance then grows by the root of the missing flow times the gap between the
potential and the one that opens the state.
"""

from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import positive_part
from pdgd_jax.projection.newton._iteration import Found, excess_of
from pdgd_jax.projection.newton._options import NewtonOptions
from pdgd_jax.projection.newton._rays import AnyCones, AnyProblem

__all__ = ["accepted", "measured"]

# The residual includes the squared distance that too low potentials may cause, times this factor.
# With 4, the distance is at most half the root of the tolerance. A larger factor sends more lanes
# to the slow loop; with 4 it is one or two of a thousand random problems.
TOO_LOW = 4


def _returned_excess(cones: AnyCones, found: Found) -> Array:
    """$F q - b$ of the returned point, not of the iterate."""
    value = jax.tree.map(positive_part, found.value)
    return excess_of(cones, cones.totals(value), value, found.last)


def _at_least(found: Found, *residuals: Array) -> Found:
    return found._replace(residual=reduce(jnp.maximum, residuals, found.residual))


def measured(cones: AnyCones, found: Found) -> Found:
    """The same with a residual that includes the flow of the returned point, not of the iterate."""
    return _at_least(found, jnp.abs(_returned_excess(cones, found)).max((0, 1)))


def _examined(problem: AnyProblem, cones: AnyCones, found: Found) -> Found:
    """`measured`, with the error of too low potentials included, times `TOO_LOW`."""
    excess = _returned_excess(cones, found)
    outflow = cones.outflow(found.start.mass, found.last)
    closed = -excess > outflow  # or nearly closed: states after it may be closed as well

    def missing(problem: AnyProblem, potential: Array, excess: Array) -> Array:
        rise = problem.opened(potential, jnp.zeros_like(potential[0, 0])) - potential
        return (positive_part(-excess) * rise).sum((0, 1))

    error = lax.cond(
        closed.any(),
        missing,
        lambda problem, potential, excess: jnp.zeros_like(potential[0, 0]),
        problem,
        found.start.potential,
        excess,
    )
    return _at_least(found, jnp.abs(excess).max((0, 1)), TOO_LOW * error)


def accepted(
    options: NewtonOptions, problem: AnyProblem, cones: AnyCones, found: Found, goal: Array
) -> Found:
    """The result of the local loop, with a residual above the goal where it is not good enough.

    The expensive check runs only if some lane needs it.
    """
    reach = 1 + jnp.abs(found.start.potential).max((0, 1))
    doubt = jnp.maximum(found.residual * reach, found.rounding)
    sure = (doubt <= options.negligible * goal).all()
    return lax.cond(sure, lambda problem, cones, found: found, _examined, problem, cones, found)
