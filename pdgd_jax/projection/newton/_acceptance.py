r"""When a point is close enough to the projection to be returned.

With $r = F q - b$ and potentials that are off by $z$, $\|q - q^*\|^2 \le r^\top z$. In a state that
something leaves, $z$ exceeds a mean of the next states' by no more than the distance. If all states
are such, $|z| \le L \|q - q^*\|$, and the distance is at most $L \|r\|_1$.

But a state that hardly anything enters and nothing leaves is within the tolerance whatever its
potential is, if only it is low. Then the distance is larger by the root of what is missing, times
how far the potential is below that which opens the state.
"""

from functools import reduce

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import positive_part
from pdgd_jax.projection._layout import Cones, per_state
from pdgd_jax.projection._opening import opened
from pdgd_jax.projection._problem import Problem, entries_sum
from pdgd_jax.projection.newton._iteration import Found, excess_of
from pdgd_jax.projection.newton._options import NewtonOptions

__all__ = ["accepted", "measured"]

# The residual counts so many times the square of the distance that potentials which are too low
# may cause, so that it is at most half the root of the tolerance. With more of them, more lanes are
# solved again by the slow loop: with 4, one or two of a thousand random problems.
TOO_LOW = 4


def _returned_excess(cones: Cones, found: Found) -> Array:
    """$F q - b$ of what is returned, not of the iterate."""
    value = positive_part(found.value)
    return excess_of(cones, entries_sum(value), value, found.last)


def _at_least(found: Found, *residuals: Array) -> Found:
    return found._replace(residual=reduce(jnp.maximum, residuals, found.residual))


def measured(cones: Cones, found: Found) -> Found:
    """With the flow of what is returned in the residual, not that of the iterate."""
    return _at_least(found, jnp.abs(_returned_excess(cones, found)).max((0, 1)))


def _examined(problem: Problem, cones: Cones, found: Found) -> Found:
    """`measured`, and with the error of potentials that are too low, `TOO_LOW` times."""
    excess = _returned_excess(cones, found)
    outflow = per_state(found.start.mass, found.last)
    closed = -excess > outflow  # or nearly: states after it may be closed, too

    def missing(problem: Problem, potential: Array, excess: Array) -> Array:
        rise = opened(problem, potential, jnp.zeros_like(potential[0, 0])) - potential
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
    options: NewtonOptions, problem: Problem, cones: Cones, found: Found, goal: Array
) -> Found:
    """What the local loop found, with a residual above the goal where it is not good enough.

    It is looked at closely only if some lane is in doubt.
    """
    reach = 1 + jnp.abs(found.start.potential).max((0, 1))
    doubt = jnp.maximum(found.residual * reach, found.rounding)
    sure = (doubt <= options.negligible * goal).all()
    return lax.cond(sure, lambda problem, cones, found: found, _examined, problem, cones, found)
