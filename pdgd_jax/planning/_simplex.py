r"""The revised simplex method over m + 1 columns, with two phases and planning as pricing.

The linear program over all vertices $q_k$ of $\Delta(\mathcal P)$ is

$$\max_{\theta \ge 0} \sum_k \theta_k R^\top q_k \quad\text{such that}\quad
\sum_k \theta_k G^\top q_k + \text{slack} = 0, \quad \sum_k \theta_k = 1.$$

A basis has $m + 1$ columns $(G^\top q, 1)$, slacks $(e_i, 0)$, or the artificial one,
$(-s, \dots, -s, 1)$: a pretended policy that satisfies every constraint by $s > 0$. Phase one makes
its weight $\theta_\circ$ as small as possible. Since it helps all constraints alike, the rest of
the mixture then violates the worst constraint the least, by $s\,\theta_\circ / (1 - \theta_\circ)$:
the exact answer if there is nothing feasible. In phase two the column must not come back.

Ties in the ratio test are broken lexicographically, which rules out cycling. The inverse is updated
in each pivot, and polished by a step of Newton's (Schulz), so that its errors do not add up.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pdgd_jax._internal.typing import Flag

__all__ = ["Basis", "Column", "duals", "enter", "first_basis", "settle", "small", "weights"]


class Basis(NamedTuple):
    """A basis. The last axis of `columns` and all axes `n` are its m + 1 positions.

    Attributes:
      columns: `[m + 1, n]`.
      inverse: `[n, m + 1]`.
      rewards: `[n]`, what each column earns in phase two.
      is_policy: `[n]`.
      is_artificial: `[n]`.
      feasible: whether phase two has begun.
    """

    columns: Array
    inverse: Array
    rewards: Array
    is_policy: Array
    is_artificial: Array
    feasible: Flag


class Column(NamedTuple):
    """A column that may enter."""

    entries: Array
    reward: Array
    is_policy: Flag


def small(like: Array) -> float:
    """What counts as nothing: 4e-11 in double precision, 2e-5 in single."""
    return float(jnp.finfo(like.dtype).eps) ** (2 / 3)


def first_basis(num_constraints: int, scale: Array) -> Basis:
    """All slacks and the artificial column, whose constraints are satisfied by `scale`."""
    n = num_constraints + 1
    eye = jnp.eye(n, dtype=scale.dtype)
    side = jnp.zeros((n, n), scale.dtype).at[:-1, -1].set(scale)
    last = jnp.arange(n) == num_constraints
    return Basis(
        columns=eye - side,
        inverse=eye + side,
        rewards=jnp.zeros(n, scale.dtype),
        is_policy=jnp.zeros(n, bool),
        is_artificial=last,
        feasible=jnp.zeros((), bool),
    )


def weights(basis: Basis) -> Array:
    r"""$\theta$, `[n]`: the right-hand side is the last unit vector."""
    return jnp.maximum(basis.inverse[:, -1], 0)


def duals(basis: Basis) -> tuple[Array, Array]:
    r"""The multipliers $\lambda$, `[m]`, and the price $t$ of a unit of mass, in this phase."""
    pretended = -basis.is_artificial.astype(basis.rewards.dtype)
    rewards = jnp.where(basis.feasible, basis.rewards, pretended)
    prices = (rewards[:, None] * basis.inverse).sum(0)
    return prices[:-1], prices[-1]


def enter(basis: Basis, column: Column) -> tuple[Basis, Array]:
    """The basis with one column more and one less, and where it stands, `[n]`."""
    step = (basis.inverse * column.entries[None]).sum(1)
    out = _leaving(basis, step)
    pivot = jnp.where(out, step, 0).sum()
    row = jnp.where(out[:, None], basis.inverse, 0).sum(0) / jnp.where(pivot == 0, 1, pivot)
    inverse = jnp.where(out[:, None], row[None], basis.inverse - step[:, None] * row[None])
    columns = jnp.where(out[None], column.entries[:, None], basis.columns)
    return (
        Basis(
            columns=columns,
            inverse=_polished(inverse, columns),
            rewards=jnp.where(out, column.reward, basis.rewards),
            is_policy=jnp.where(out, column.is_policy, basis.is_policy),
            is_artificial=basis.is_artificial & ~out,
            feasible=basis.feasible,
        ),
        out,
    )


def _leaving(basis: Basis, step: Array) -> Array:
    """The position that reaches zero first, marked, `[n]`; nothing is marked if none does."""
    nothing = small(step)
    falling = step > nothing
    # In phase two the artificial column weighs nothing; it leaves before it could weigh more.
    forced = basis.is_artificial & basis.feasible & (jnp.abs(step) > nothing)
    tied = jnp.where(forced.any(), forced, falling)
    size = step.shape[0]
    safe = jnp.where(falling, step, 1)
    rounding = 16 * float(jnp.finfo(step.dtype).eps)
    for k in (size - 1, *range(size - 1)):
        ratio = jnp.where(tied, basis.inverse[:, k] / safe, jnp.inf)
        least = ratio.min()
        tied = tied & (ratio <= least + rounding * (1 + jnp.abs(least)))
    first = jnp.argmax(tied)
    return tied.any() & (jnp.arange(size) == first)


def _polished(inverse: Array, matrix: Array) -> Array:
    return 2 * inverse - _product(inverse, _product(matrix, inverse))


def _product(left: Array, right: Array) -> Array:
    return (left[:, :, None] * right[None]).sum(1)


def settle(basis: Basis) -> Basis:
    """Begin phase two as soon as possible, and let slacks enter while one would help."""
    count = basis.rewards.shape[0]
    most = 4 * count

    def begun(basis: Basis) -> Basis:
        left = jnp.where(basis.is_artificial, weights(basis), 0).sum()
        return basis._replace(feasible=basis.feasible | (left <= small(left)))

    def helps(carry: tuple[Basis, Array]) -> Array:
        basis, steps = carry
        return (_least(basis)[0] < -small(basis.rewards)) & (steps < most)

    def another(carry: tuple[Basis, Array]) -> tuple[Basis, Array]:
        basis, steps = carry
        entries = (jnp.arange(count) == _least(basis)[1]).astype(basis.rewards.dtype)
        slack = Column(entries, jnp.zeros_like(basis.rewards[0]), jnp.zeros((), bool))
        return begun(enter(basis, slack)[0]), steps + 1

    return jax.lax.while_loop(helps, another, (begun(basis), jnp.zeros((), jnp.int32)))[0]


def _least(basis: Basis) -> tuple[Array, Array]:
    multipliers, _ = duals(basis)
    return multipliers.min(), jnp.argmin(multipliers)
