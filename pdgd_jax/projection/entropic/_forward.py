"""The occupancy of the policy and transitions that were found: exactly feasible, in logarithms."""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ABSENT
from pdgd_jax.projection._layout import split
from pdgd_jax.projection.entropic._batch import Batch
from pdgd_jax.projection.entropic._cones import logarithm
from pdgd_jax.projection.entropic._evaluation import LogFlow

__all__ = ["pushed_forward"]


def _laid_out(batch: Batch, found: LogFlow) -> Array:
    r"""$\ln q$ before the layers have the mass 1, `[S', L, S, A, B]`."""
    flow = found.mass[None] + found.share
    first, *inner = split(flow, found.last)
    root = jnp.full_like(batch.present[:, :1], ABSENT, flow.dtype)
    root = root.at[:, :1, :1].set(first.swapaxes(1, 3))
    last = jnp.broadcast_to(found.last[None, None], root.shape)
    whole = jnp.concatenate([root, *(x.swapaxes(1, 3) for x in inner), last], 1)
    return jnp.where(batch.present, whole, ABSENT)


def pushed_forward(batch: Batch, found: LogFlow) -> tuple[Array, Array]:
    r"""The logarithm of an occupancy, at least `ABSENT`, and what was added in each state.

    $\ln q_k = \ln d_k + \ln \pi + \ln P$ with $d_{k+1}(x') = \sum q_k(x, a, x')$, where
    $\pi(a \mid x) \propto s_{xa}$. So flow is conserved up to rounding relative to the mass of each
    state, however small that is, and errors do not add up from one projection to the next.

    Returns:
      `[S', L, S, A, B]` and `[L, S, B]`.
    """
    log_flow = _laid_out(batch, found)

    def forward(mass: Array, flow: Array) -> tuple[Array, tuple[Array, Array]]:
        # The outflow is summed again: that of the evaluation leaves out the smallest parts.
        largest = jnp.maximum(flow.max((0, 2)), ABSENT)
        outflow = jnp.exp(flow - largest[None, :, None]).sum((0, 2))
        move = jnp.where(mass > ABSENT / 2, mass - largest - logarithm(outflow), ABSENT)
        flow = jnp.maximum(flow + move[None, :, None], ABSENT)
        most = flow.max((1, 2))
        entered = jnp.exp(flow - most[:, None, None]).sum((1, 2))
        return jnp.where(most > ABSENT / 2, most + jnp.log(entered), ABSENT), (flow, move)

    start = jnp.full_like(log_flow[:, 0, 0, 0], ABSENT).at[0].set(0)
    _, (pushed, moves) = lax.scan(forward, start, jnp.moveaxis(log_flow, 1, 0))
    return jnp.moveaxis(pushed, 0, 1), moves
