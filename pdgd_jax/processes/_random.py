"""Random numbers that do not change when an instance is padded.

With `jax.random.uniform(key, (L, S, A))` the number of an entry depends on S and A, so that a
padded instance would see other rewards than the original. Here the number of entry `[i, l, s, a]`
depends only on the key and on `(i, l, s, a)`, which are the counters of one call of Threefry.
"""

import math

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jaxtyping import Array, DTypeLike, Float, Key

__all__ = ["betas_for", "normal_quantile", "uniforms_for"]


def uniforms_for(
    key: Key[Array, ""], shape: tuple[int, ...], dtype: DTypeLike
) -> Float[Array, "..."]:
    """Independent numbers in [0, 1), of a shape `[..., L, S, A]`."""
    *leading, L, S, A = shape
    # Counters are distinct for up to 65,536 layers, states, actions and leading entries each.
    outer = _counters(math.prod(leading), L)
    inner = _counters(S, A)
    counters = jnp.concatenate([jnp.repeat(outer, inner.size), jnp.tile(inner, outer.size)])
    seed = jax.random.bits(key, (2,), jnp.uint32)
    high, low = threefry_2x32((seed[0], seed[1]), counters).reshape(2, *shape)
    if jnp.dtype(dtype) == jnp.float64:  # 27 + 26 bits make the 53 of a double
        return ((high >> 5).astype(dtype) * 2.0**26 + (low >> 6).astype(dtype)) * 2.0**-53
    return ((high >> 8).astype(jnp.float32) * 2.0**-24).astype(dtype)


def _counters(rows: int, columns: int) -> Array:
    row = jnp.arange(rows, dtype=jnp.uint32)[:, None] << 16
    return (row | jnp.arange(columns, dtype=jnp.uint32)[None, :]).reshape(-1)


def normal_quantile(uniforms: Float[Array, "..."]) -> Float[Array, "..."]:
    """Standard normal variables from numbers in [0, 1)."""
    edge = 1 - jnp.finfo(uniforms.dtype).epsneg  # a uniform of 0 would be minus infinity
    return jnp.sqrt(2.0).astype(uniforms.dtype) * jax.lax.erf_inv(
        jnp.clip(2 * uniforms - 1, -edge, edge)
    )


def betas_for(
    key: Key[Array, ""], alpha: Float[Array, "..."], beta: Float[Array, "..."]
) -> Float[Array, "..."]:
    """A Beta variable for each entry; `alpha` and `beta` are positive.

    It is a ratio of two Gamma variables, each drawn by Marsaglia and Tsang's rejection method with
    all attempts made at once. (In a loop, every lane of a `vmap` would wait for the slowest.) An
    attempt fails with probability below 0.05, all eight in fewer than one of 10^10 draws; then the
    last attempt is used.
    """
    attempts = 8
    count = 2 * attempts + 1
    uniforms = uniforms_for(key, (2 * count, *alpha.shape), alpha.dtype)
    tiny = jnp.finfo(alpha.dtype).tiny
    uniforms = jnp.maximum(uniforms, tiny)  # their logarithms are taken below

    def log_gamma_variable(shape: Array, uniforms: Array) -> Array:
        # The method needs shape >= 1: draw for shape + 1, then use G(a) = G(a + 1) U^(1/a).
        d = shape[None] + 1 - 1 / 3
        normal = normal_quantile(uniforms[:attempts])
        v = (1 + normal / jnp.sqrt(9 * d)) ** 3
        log_v = jnp.log(jnp.maximum(v, tiny))
        bound = normal**2 / 2 + d - d * v + d * log_v
        accepted = (v > 0) & (jnp.log(uniforms[attempts : 2 * attempts]) < bound)
        first = jnp.argmax(accepted.at[-1].set(True), axis=0)
        chosen = jnp.take_along_axis(jnp.log(d) + log_v, first[None], axis=0)[0]
        return chosen + jnp.log(uniforms[-1]) / shape

    x = log_gamma_variable(alpha, uniforms[:count])
    y = log_gamma_variable(beta, uniforms[count:])
    return jax.nn.sigmoid(x - y)
