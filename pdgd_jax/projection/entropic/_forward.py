"""The occupancy of the policy and transitions that were found: exactly feasible, in logarithms."""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array

from pdgd_jax.projection._cone import ABSENT
from pdgd_jax.projection._layout import around, split
from pdgd_jax.projection._problem import next_states_sum
from pdgd_jax.projection._xla import fence
from pdgd_jax.projection.entropic._batch import Batch
from pdgd_jax.projection.entropic._cones import largest_entry, logarithm
from pdgd_jax.projection.entropic._evaluation import LogFlow

__all__ = ["Pushed", "moves_of", "pushed_forward"]


class Pushed(NamedTuple):
    """An occupancy, or its logarithm."""

    entries: Array  # [S', C B]
    last: Array  # [S, A, B], of the last layer

    def assembled(self, batch: Batch, empty: float) -> Array:
        """The same as `[S', L, S, A, B]`, with `empty` where there is no variable."""
        first, *inner = split(self.entries, self.last)
        root = jnp.full_like(batch.present[:, :1], empty, self.last.dtype)
        root = root.at[:, :1, :1].set(first.swapaxes(1, 3))
        last = jnp.broadcast_to(self.last[None, None], root.shape)
        whole = jnp.concatenate([root, *(x.swapaxes(1, 3) for x in inner), last], 1)
        return jnp.where(batch.present, whole, empty)


def _log_sum(array: Array) -> Array:
    """The logarithm of a sum of exponentials over the first axis; of nothing, `ABSENT`."""
    largest = jnp.maximum(largest_entry(array), ABSENT)
    return largest + logarithm(next_states_sum(jnp.exp(array - largest[None])))


def _between(flow: Array, last: Array) -> tuple[Array, Array]:
    """Logarithms of what goes from state to state, `[S', S, L-1, B]`, and leaves, `[L, S, B]`."""
    first, *inner = (_log_sum(x.swapaxes(0, 1)) for x in split(flow, last))
    root = jnp.full((len(last), *first.shape), ABSENT, first.dtype)
    root = root.at[0].set(first).swapaxes(0, 1)[:, :, 0]
    between = jnp.maximum(jnp.concatenate([root, *inner], 2), ABSENT)
    leaving = jnp.concatenate(
        [_log_sum(between).swapaxes(0, 1), _log_sum(last.swapaxes(0, 1))[None]]
    )
    return between, leaving


def _moves(flow: Array, last: Array) -> Array:
    between, leaving = _between(flow, last)

    def move_of(mass: Array, out: Array) -> Array:
        there = (mass > ABSENT / 2) & (out > ABSENT / 2)
        return jnp.where(there, mass - out, ABSENT)

    def forward(mass: Array, layer: tuple[Array, Array]) -> Any:
        between, out = layer
        move = move_of(mass, out)
        return _log_sum((between + move[None]).swapaxes(0, 1)), move

    start = jnp.full_like(leaving[0], ABSENT).at[0].set(0)
    end, moves = lax.scan(forward, start, (jnp.moveaxis(between, 2, 0), leaving[:-1]))
    return jnp.concatenate([moves, move_of(end, leaving[-1])[None]])


def moves_of(found: LogFlow) -> Array:
    r"""What to add to the logarithms of each state's flow, such that what enters leaves.

    $\ln q_k = \ln d_k + \ln \pi + \ln P$ with $d_{k+1}(x') = \sum q_k(x, a, x')$, where
    $\pi(a \mid x) \propto s_{xa}$. Sums are relative to their largest part, pair of states by pair
    of states, so that none is lost however small it is.

    Returns:
      `[L, S, B]`; `ABSENT` where nothing enters.
    """
    return fence(_moves, found.mass[None] + found.share, found.last)


def pushed_forward(found: LogFlow) -> Pushed:
    """The logarithm of the occupancy, at least `ABSENT`.

    Flow is conserved up to rounding relative to the mass of each state, however small that is, and
    errors do not add up from one projection to the next.
    """
    moves = moves_of(found)
    here, _ = around(moves, found.last.shape[1])
    flow = found.mass[None] + found.share + here[None]
    return Pushed(jnp.maximum(flow, ABSENT), jnp.maximum(found.last + moves[-1][:, None], ABSENT))
