"""Rewards and constraints drawn independently in every episode from one distribution."""

from typing import Protocol, runtime_checkable

import jax
import jax.numpy as jnp
from jax.scipy.stats import norm
from jaxtyping import Array, DTypeLike, Float, PyTree

from pdgd_jax._internal.checks import is_positive
from pdgd_jax._internal.pytree import as_float, is_concrete, pytree, static
from pdgd_jax._internal.typing import MaybeKey, OneKey
from pdgd_jax.processes._base import (
    Drawn,
    Episode,
    Episodes,
    Extremes,
    Policy,
    StochasticProcess,
    check_values,
)
from pdgd_jax.processes._random import betas_for, normal_quantile, uniforms_for

__all__ = ["Bernoulli", "Beta", "ClippedGaussian", "Constant", "UniformNoise"]

# All constructors take the mean (or location) with the shape of a reward, [L, S, A], or of
# constraints, [m, L, S, A]. The rank decides the range, [0, 1] or [-1, 1].


@pytree
class Constant(StochasticProcess, checks_values=True):
    """The same values in every episode.

    Args:
      values: `[L, S, A]` in [0, 1] for a reward, `[m, L, S, A]` in [-1, 1] for constraints.
    """

    values: Float[Array, "..."]

    def __post_init__(self) -> None:
        values, _ = check_values("values", self.values)
        object.__setattr__(self, "values", values)

    def draw(self, key: MaybeKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """The values."""
        return self.values, state

    def mean(self) -> Float[Array, "..."]:
        """The values."""
        return self.values

    def extremes(self, episodes: Episodes = None) -> Extremes:
        """The values."""
        del episodes
        return Extremes(self.values[None], exact=True)


@pytree
class Bernoulli(StochasticProcess, checks_values=True):
    r"""Each entry is one of the two bounds, with the given mean.

    $\Pr\{v = b\} = (\mu - a)/(b - a)$, else $v = a$, where $(a, b)$ are the bounds.

    Args:
      means: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints; $\mu$.
      bounds: $(a, b)$; (0, 1) for a reward and (-1, 1) for constraints unless narrower.

    Example:
      >>> import jax, jax.numpy as jnp
      >>> reward = Bernoulli(jnp.full((2, 1, 3), 0.5))
      >>> values, _ = reward.draw(jax.random.key(0), (), 0, None)
      >>> bool(((values == 0) | (values == 1)).all())
      True
    """

    means: Float[Array, "..."]
    bounds: tuple[float, float] | None = static(default=None)

    def __post_init__(self) -> None:
        _settle(self, "means")

    def draw(self, key: OneKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """Independent coins."""
        low, high = _bounds(self)
        uniforms = uniforms_for(key, self.means.shape, self.means.dtype)
        # u < p with u in [0, 1): never for p = 0, always for p = 1.
        values = jnp.where(uniforms < (self.means - low) / (high - low), high, low)
        return values.astype(self.means.dtype), state

    def mean(self) -> Float[Array, "..."]:
        """The means."""
        return self.means

    def highest(self) -> Float[Array, "..."]:
        """The upper bound, except where it never occurs."""
        return _reached_bound(self.means, _bounds(self))


@pytree
class Beta(StochasticProcess, checks_values=True):
    r"""Each entry is $a + (b-a)\,\mathrm{Beta}(c p, c(1-p))$ with $p = (\mu-a)/(b-a)$.

    Args:
      means: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints; $\mu$.
      concentration: $c > 0$; larger is closer to the mean.
      bounds: $(a, b)$; (0, 1) for a reward and (-1, 1) for constraints unless narrower.
    """

    means: Float[Array, "..."]
    concentration: Float[Array, ""] | float = 4.0
    bounds: tuple[float, float] | None = static(default=None)

    def __post_init__(self) -> None:
        _settle(self, "means")
        _settle_positive(self, "concentration")

    def draw(self, key: OneKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """Independent Beta variables."""
        low, high = _bounds(self)
        share = (self.means - low) / (high - low)
        # A Beta variable with a zero parameter is constant, and the sampler needs both above zero.
        degenerate = (share <= 0) | (share >= 1)
        inner = jnp.where(degenerate, 0.5, share)
        alpha, beta = inner * self.concentration, (1 - inner) * self.concentration
        drawn = betas_for(key, alpha, beta)
        return low + (high - low) * jnp.where(degenerate, share, drawn), state

    def mean(self) -> Float[Array, "..."]:
        """The means."""
        return self.means

    def highest(self) -> Float[Array, "..."]:
        """The upper bound, except where it never occurs."""
        return _reached_bound(self.means, _bounds(self))


@pytree
class ClippedGaussian(StochasticProcess, checks_values=True):
    r"""Each entry is a Gaussian, clipped to the bounds.

    Clipping moves the mean, so `mean` is not $\mu$ but that of the clipped variable,
    $a\Phi(\alpha) + b(1-\Phi(\beta)) + \mu(\Phi(\beta)-\Phi(\alpha)) +
    \sigma(\phi(\alpha)-\phi(\beta))$
    with $\alpha = (a-\mu)/\sigma$ and $\beta = (b-\mu)/\sigma$.

    Args:
      location: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints; $\mu$, within the bounds.
      scale: $\sigma > 0$.
      bounds: $(a, b)$; (0, 1) for a reward and (-1, 1) for constraints unless narrower.
    """

    location: Float[Array, "..."]
    scale: Float[Array, ""] | float = 0.1
    bounds: tuple[float, float] | None = static(default=None)

    def __post_init__(self) -> None:
        _settle(self, "location")
        _settle_positive(self, "scale")

    def draw(self, key: OneKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """Independent clipped Gaussians."""
        low, high = _bounds(self)
        uniforms = uniforms_for(key, self.location.shape, self.location.dtype)
        values = self.location + self.scale * normal_quantile(uniforms)
        return jnp.clip(values, low, high), state

    def mean(self) -> Float[Array, "..."]:
        """The mean of the clipped variable."""
        low, high = _bounds(self)
        below = (low - self.location) / self.scale
        above = (high - self.location) / self.scale
        inside = norm.cdf(above) - norm.cdf(below)
        return (
            low * norm.cdf(below)
            + high * norm.sf(above)
            + self.location * inside
            + self.scale * (norm.pdf(below) - norm.pdf(above))
        )

    def highest(self) -> Float[Array, "..."]:
        """The upper bound."""
        return jnp.full_like(self.location, _bounds(self)[1])


@pytree
class UniformNoise(StochasticProcess, checks_values=True):
    r"""Each entry is uniform on $[\mu - w, \mu + w]$.

    Where this interval would leave the bounds, $w$ is reduced, so that the mean remains $\mu$.

    Args:
      means: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints; $\mu$.
      half_width: $w > 0$.
      bounds: (0, 1) for a reward and (-1, 1) for constraints unless narrower.
    """

    means: Float[Array, "..."]
    half_width: Float[Array, ""] | float = 0.2
    bounds: tuple[float, float] | None = static(default=None)

    def __post_init__(self) -> None:
        _settle(self, "means")
        _settle_positive(self, "half_width")

    def draw(self, key: OneKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """Independent uniform variables."""
        low, high = _bounds(self)
        uniforms = uniforms_for(key, self.means.shape, self.means.dtype)
        return jnp.clip(self.means + self._reach() * (2 * uniforms - 1), low, high), state

    def _reach(self) -> Array:
        low, high = _bounds(self)
        return jnp.clip(jnp.minimum(self.means - low, high - self.means), 0, self.half_width)

    def mean(self) -> Float[Array, "..."]:
        """The means."""
        return self.means

    def highest(self) -> Float[Array, "..."]:
        r"""$\mu + w$."""
        return jnp.minimum(self.means + self._reach(), _bounds(self)[1])


@runtime_checkable
class _Bounded(Protocol):
    @property
    def bounds(self) -> tuple[float, float] | None: ...


def _reached_bound(means: Array, bounds: tuple[float, float]) -> Array:
    """The upper bound, except where the mean is the lower bound and no other value occurs."""
    low, high = bounds
    return jnp.where(means > low, high, low).astype(means.dtype)


def _settle(process: _Bounded, name: str) -> None:
    values, bounds = check_values(name, getattr(process, name), process.bounds)
    object.__setattr__(process, name, values)
    object.__setattr__(process, "bounds", bounds)


def _settle_positive(process: StochasticProcess, name: str) -> None:
    value = getattr(process, name)
    if is_concrete(value) and not (jnp.ndim(value) == 0 and is_positive(value)):
        raise ValueError(f"{name} must be a positive number; got {value}.")
    object.__setattr__(process, name, as_float(value).astype(_float_of(process)))


def _float_of(process: StochasticProcess) -> DTypeLike:
    return jax.tree.leaves(process)[0].dtype


def _bounds(process: _Bounded) -> tuple[float, float]:
    assert process.bounds is not None  # set by the constructor
    return process.bounds
