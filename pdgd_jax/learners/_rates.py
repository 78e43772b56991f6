r"""The step sizes: those of the proofs, those that balance the bounds, or a given pair.

With $U_2$ the number of triples $(x, a, x')$, the dimension in which we project:

| rates | $C$ | $\eta$ |
|---|---|---|
| "theory" | $5 U_2 / L$ | $1 / (50 m \max\{2 U_2, L\} \sqrt{T \ln(T^2/\delta)})$ |
| "tuned" | $\sqrt{U_2 / (2L)}$ | $1 / (L \sqrt{m T})$ |

The rates "theory" are those of the proof of the bound on the multipliers, where only their order in
T matters; at the horizons of an experiment they barely move the multipliers. The rates "tuned"
minimise two bounds of the paper: $L C + U_2 / (2C)$ over $C$, and the dual player's regret against
a multiplier of norm one over $\eta$. Use "theory" to check theorems, and "tuned" otherwise.
"""

from collections.abc import Callable
from typing import TypeAlias

import jax.numpy as jnp
from jaxtyping import ArrayLike

from pdgd_jax._internal.checks import is_positive
from pdgd_jax._internal.pytree import as_array, is_concrete, numpy_for
from pdgd_jax._internal.registry import Registry
from pdgd_jax.learners._base import Rates
from pdgd_jax.models import Layers

__all__ = ["RATES", "RatesLike", "rates_of"]

# A name, or the pair of constants.
RatesLike: TypeAlias = str | Rates | tuple[ArrayLike, ArrayLike]


def theory(
    layers: Layers, num_constraints: int, num_episodes: ArrayLike, delta: ArrayLike
) -> Rates:
    """The rates in the proof of the bound on the multipliers."""
    triples, L = layers.num_triples.astype(float), layers.num_layers.astype(float)
    T = jnp.asarray(num_episodes, float)
    logarithm = 2 * jnp.log(T) - jnp.log(delta)  # T^2 overflows an int32
    widest = jnp.maximum(2 * triples, L)
    eta = 1 / (50 * num_constraints * widest * jnp.sqrt(T * logarithm))
    return Rates(5 * triples / L, eta)


def tuned(layers: Layers, num_constraints: int, num_episodes: ArrayLike, delta: ArrayLike) -> Rates:
    """The rates that minimise the two bounds."""
    del delta
    triples, L, dtype = layers.num_triples, layers.num_layers, jnp.result_type(float)
    xp = numpy_for(triples, L, num_episodes)
    triples, L, T = (xp.asarray(x, dtype) for x in (triples, L, num_episodes))
    eta = 1 / (L * xp.sqrt(num_constraints * T))
    return Rates(as_array(xp.sqrt(triples / (2 * L))), as_array(eta))


RATES = Registry[Callable[[Layers, int, ArrayLike, ArrayLike], Rates]](
    "rates", listing="they are {quoted}, or a pair (C, eta) of positive numbers."
)
RATES.add("theory", theory)
RATES.add("tuned", tuned)


def rates_of(
    rates: RatesLike,
    layers: Layers,
    num_constraints: int,
    num_episodes: ArrayLike,
    delta: ArrayLike,
) -> Rates:
    r"""Look up rates by name, or check a pair of constants.

    Args:
      rates: "theory", "tuned", or the pair $(C, \eta)$; its numbers may be traced.
      layers: the states and actions.
      num_constraints: m.
      num_episodes: T; may be traced.
      delta: the confidence parameter.

    Raises:
      ValueError: if there is no such name, or a constant is not positive.
    """
    if isinstance(rates, str):
        return RATES.get(rates)(layers, num_constraints, num_episodes, delta)
    try:
        primal, dual = rates
    except (TypeError, ValueError):
        raise ValueError(
            f'rates are "theory", "tuned", or a pair (C, eta) of positive numbers; got {rates!r}.'
        ) from None
    for name, value in (("C", primal), ("eta", dual)):
        if is_concrete(value) and not is_positive(value):
            raise ValueError(f"the rate {name} must be positive and finite; got {value!r}.")
    return Rates(jnp.asarray(primal, float), jnp.asarray(dual, float))
