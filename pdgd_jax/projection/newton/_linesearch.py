"""The line search of globalised Newton steps."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pdgd_jax.projection.newton._iteration import Iterate, select

__all__ = ["Search", "Step", "dual_value", "judged"]


class Search(NamedTuple):
    """The state of a line search."""

    iterate: Iterate  # the last point that was accepted
    value: Array  # [B], of the dual there
    least: Array  # [B], residual of all points so far
    length: Array  # [B], of the next step: a share of Newton's
    direction: Array  # [L, S, B], Newton's last step, or a guess of the first one


class Step(NamedTuple):
    """A shortened Newton step."""

    change: Array  # [L, S, B], of the potentials
    slope: Array  # [B], of the dual along it


def dual_value(iterate: Iterate) -> Array:
    r"""$f(y) = \tfrac12 \|q\|^2 - b^\top y$, `[B]`."""
    num_lanes = iterate.residual.size
    square: Any = (iterate.last**2).sum((0, 1))
    for value in jax.tree.leaves(iterate.pieces.occupancy):
        square = (value**2).sum(0).reshape(-1, num_lanes).sum(0) + square
    return square / 2 - iterate.start.potential[0, 0]


def judged(search: Search, step: Step, trial: Iterate, moving: Array) -> Search:
    """The search after a trial step, which is accepted or shortened.

    A step is accepted if it descends, if it halves the smallest residual so far, or if it is too
    short to matter. The second test works even where rounding hides the descent, and can succeed
    only finitely often.

    Args:
      search: the search before the trial.
      step: the trial step.
      trial: the iterate at its end.
      moving: `[B]`, the lanes that made a step; in the others the trial is the iterate.
    """
    iterate, value, least, length, direction = search
    trial_value = dual_value(trial)
    rise = trial_value - value
    # The rounding error of the dual. A smaller descent is invisible. But one can see whether the
    # slope has fallen to half, as it does only near or before the lowest point.
    rounding = 4 * jnp.finfo(value.dtype).eps * (1 + jnp.abs(value))
    flatter = (trial.gradient * step.change).sum((0, 1)) <= -step.slope / 2
    accept = (
        (rise <= 1e-4 * step.slope - rounding)
        | ((rise <= rounding) & flatter)
        | (trial.residual <= least / 2)
        | (length < 1e-10)
    )
    # The minimiser of the interpolating parabola, safeguarded.
    shorter = length * jnp.clip(-step.slope / (2 * (rise - step.slope)), 0.05, 0.5)
    return Search(
        iterate=select(accept | ~moving, trial, iterate._replace(iterations=trial.iterations)),
        value=jnp.where(accept, trial_value, value),
        least=jnp.where(trial.residual < least, trial.residual, least),
        length=jnp.where(accept, 1, shorter),
        direction=direction,
    )
