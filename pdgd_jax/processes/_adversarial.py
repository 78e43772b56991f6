"""Rewards and constraints chosen by an adversary."""

from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

from pdgd_jax._internal.checks import fraction, is_whole, whole_number
from pdgd_jax._internal.pytree import as_float, is_concrete, pytree, static
from pdgd_jax._internal.typing import MaybeKey, OneKey
from pdgd_jax.processes._base import (
    AdversarialProcess,
    Drawn,
    Episode,
    Episodes,
    Extremes,
    Policy,
    Process,
    Timetable,
    check_range,
    check_values,
)

__all__ = ["Adaptive", "Corrupted", "Drift", "Phases", "Table"]


@pytree
class Table(AdversarialProcess, checks_values=True):
    """An explicit table: row t holds the values of episode t.

    Args:
      values: `[T, L, S, A]` in [0, 1] for rewards, `[T, m, L, S, A]` in [-1, 1] for constraints.

    Example:
      >>> import jax.numpy as jnp
      >>> table = Table(jnp.zeros((100, 2, 1, 3)))
      >>> table.num_episodes
      100
    """

    values: Float[Array, "episodes ..."]
    num_episodes: int | None = static(default=None, init=False)

    def __post_init__(self) -> None:
        values, _ = check_values("values", self.values, leading=1)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "num_episodes", values.shape[0])

    def draw(self, key: MaybeKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """Row `episode`; NaN past the end."""
        row = self.values.at[episode].get(mode="fill", fill_value=jnp.nan)
        return row, state

    def extremes(self, episodes: Episodes = None) -> Extremes:
        """The rows of these episodes."""
        rows = self.values if episodes is None else self.values[np.asarray(episodes)]
        return Extremes(rows, exact=True)

    def timetable(self, num_episodes: int) -> Timetable:
        """The first rows."""
        return Timetable(np.asarray(self.values[:num_episodes]), np.arange(num_episodes))


@pytree
class Phases(AdversarialProcess, checks_values=True):
    r"""A few values that take turns.

    With $p$ the `period`, episode $t$ is in turn $\lfloor t/p \rfloor$ for `"periodic"` (the turns
    repeat in a cycle) and `"once"` (the last turn never ends). For `"doubling"` it is in turn
    $\lfloor \log_2(t/p + 1) \rfloor$: each turn is twice as long as the one before, and the turns
    repeat in a cycle.

    Args:
      values: `[n, L, S, A]` for rewards, `[n, m, L, S, A]` for constraints.
      period: the number of episodes of the first turn.
      schedule: "periodic", "doubling" or "once".
    """

    values: Float[Array, "phases ..."]
    period: Int[Array, ""] | int = 1000
    schedule: Literal["periodic", "doubling", "once"] = static(default="periodic")

    def __post_init__(self) -> None:
        values, _ = check_values("values", self.values, leading=1)
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "period", _period(self.period))
        if self.schedule not in ("periodic", "doubling", "once"):
            raise ValueError(
                f'schedule must be "periodic", "doubling" or "once"; got {self.schedule!r}.'
            )

    def draw(self, key: MaybeKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """The values of the current turn."""
        return self.values[self._phase(jnp.asarray(episode, jnp.int32))], state

    def _phase(self, episode: Array) -> Array:
        count = self.values.shape[0]
        turn = episode // self.period
        if self.schedule == "once":
            return jnp.minimum(turn, count - 1)
        if self.schedule == "doubling":
            turn = 31 - jax.lax.clz(turn + 1)  # the integer part of a binary logarithm
        return turn % count

    def extremes(self, episodes: Episodes = None) -> Extremes:
        """The values of the turns in these episodes."""
        if episodes is None:
            return Extremes(self.values, exact=True)
        phases = np.unique(np.asarray(self._phase(jnp.asarray(episodes, jnp.int32))))
        return Extremes(self.values[phases], exact=True)

    def timetable(self, num_episodes: int) -> Timetable:
        """The values of all phases, and the phase of each episode."""
        episodes = jnp.arange(num_episodes, dtype=jnp.int32)
        return Timetable(np.asarray(self.values), np.asarray(self._phase(episodes)))


@pytree
class Drift(AdversarialProcess, checks_values=True):
    r"""Sinusoidal drift: $v_t = c + a \sin(2\pi t/p)$, entry by entry.

    Args:
      center: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints; $c$.
      amplitude: $a$, of the same shape or a number; $c \pm a$ must stay in range.
      period: $p$, in episodes.
    """

    center: Float[Array, "..."]
    amplitude: Float[Array, "..."]
    period: Int[Array, ""] | int = 1000

    def __post_init__(self) -> None:
        center, bounds = check_values("center", self.center)
        amplitude = jnp.broadcast_to(as_float(self.amplitude), center.shape).astype(center.dtype)
        if is_concrete(center, amplitude):
            what = "a drifting reward" if center.ndim == 3 else "a drifting constraint"
            reach = np.abs(np.asarray(amplitude))
            check_range("center + amplitude", np.asarray(center) + reach, bounds, what)
            check_range("center - amplitude", np.asarray(center) - reach, bounds, what)
        object.__setattr__(self, "center", center)
        object.__setattr__(self, "amplitude", amplitude)
        object.__setattr__(self, "period", _period(self.period))

    def draw(self, key: MaybeKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """The values of `episode`."""
        return self.center + self._wave(jnp.asarray(episode, jnp.int32)) * self.amplitude, state

    def _wave(self, episode: Array) -> Array:
        # The remainder of integers, since a float32 cannot count to 10^8 episodes.
        phase = (episode % self.period) / self.period
        return jnp.sin(2 * jnp.pi * phase).astype(self.center.dtype)

    def extremes(self, episodes: Episodes = None) -> Extremes:
        """The two ends of the drift in these episodes."""
        period = int(self.period)
        times = np.arange(period) if episodes is None else np.unique(np.asarray(episodes) % period)
        waves = np.asarray(self._wave(jnp.asarray(times, jnp.int32)))
        ends = np.array([waves.min(), waves.max()], waves.dtype)
        shape = (2, *[1] * self.center.ndim)
        return Extremes(self.center[None] + ends.reshape(shape) * self.amplitude[None], exact=True)

    def timetable(self, num_episodes: int) -> Timetable:
        """The values of one period, which repeat."""
        length = min(int(self.period), num_episodes)
        if length * self.center.size > _MOST_NUMBERS:
            raise NotImplementedError(f"{length} values of this Drift do not fit in the memory.")
        waves = np.asarray(self._wave(jnp.arange(length, dtype=jnp.int32)))
        moved = np.multiply.outer(waves, np.asarray(self.amplitude))
        return Timetable(np.asarray(self.center) + moved, np.arange(num_episodes) % length)


@pytree
class Corrupted(AdversarialProcess, checks_values=True):
    """Another process, with a share of its episodes replaced by an adversary.

    Of every `period` episodes the first `share * period` (rounded) are corrupted. Such a burst
    hurts a learner more than the same number of corruptions at random times.

    Args:
      base: the process to corrupt.
      corruption: the process that replaces it.
      share: the share of corrupted episodes, in [0, 1].
      period: the number of episodes from one burst to the next.
    """

    base: Process
    corruption: Process
    share: Float[Array, ""] | float = 0.1
    period: Int[Array, ""] | int = 1000

    def __post_init__(self) -> None:
        if is_concrete(self.share):
            fraction("share", self.share)
        object.__setattr__(self, "share", as_float(self.share))
        object.__setattr__(self, "period", _period(self.period))

    @property
    def num_episodes(self) -> int | None:
        """The number of episodes of the shorter process."""
        ends = [n for n in (self.base.num_episodes, self.corruption.num_episodes) if n is not None]
        return min(ends, default=None)

    def init(self, key: OneKey) -> PyTree:
        """The states of both."""
        base_key, corruption_key = jax.random.split(key)
        return self.base.init(base_key), self.corruption.init(corruption_key)

    def draw(self, key: OneKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """The base's values, or the corruption's."""
        base_key, corruption_key = jax.random.split(key)
        plain, base_state = self.base.draw(base_key, state[0], episode, policy)
        corrupt, corruption_state = self.corruption.draw(corruption_key, state[1], episode, policy)
        corrupted = self._corrupts(jnp.asarray(episode, jnp.int32))
        return jnp.where(corrupted, corrupt, plain), (base_state, corruption_state)

    def _corrupts(self, episode: Array) -> Array:
        return episode % self.period < jnp.round(self.share * self.period)

    def extremes(self, episodes: Episodes = None) -> Extremes:
        """The extremes of each process in the episodes where it is used."""
        if episodes is None and self.num_episodes is not None:
            episodes = np.arange(self.num_episodes)
        every = np.arange(int(self.period)) if episodes is None else np.asarray(episodes)
        taken = np.asarray(self._corrupts(jnp.asarray(every, jnp.int32)))
        shown = [
            (process, None if episodes is None else every[when])
            for process, when in ((self.base, ~taken), (self.corruption, taken))
            if when.any()
        ]
        found = [process.extremes(when) for process, when in shown]
        values = jnp.concatenate([extremes.values for extremes in found])
        # Without a list of episodes, some values of a process may fall where the other is used.
        certain = episodes is not None or all(len(extremes.values) == 1 for extremes in found)
        return Extremes(values, exact=certain and all(extremes.exact for extremes in found))

    def timetable(self, num_episodes: int) -> Timetable:
        """The means of the base, and those of the corruption in its episodes."""
        base, other = (part.timetable(num_episodes) for part in (self.base, self.corruption))
        taken = np.asarray(self._corrupts(jnp.arange(num_episodes, dtype=jnp.int32)))
        index = np.where(taken, len(base.values) + other.which, base.which)
        return Timetable(np.concatenate([base.values, other.values]), index)


@pytree
class Adaptive(AdversarialProcess, checks_values=True):
    r"""An adversary that sees the policy and punishes its most likely actions.

    A reward is $(v(x,a) - \kappa\,\pi_t(a \mid x))$ and a constraint
    $(v_i(x,a) + \kappa\,\pi_t(a \mid x))$, both clipped to their range. The more often an action is
    played, the less it earns and the more it costs.

    Args:
      values: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints; $v$.
      strength: $\kappa \ge 0$.
    """

    values: Float[Array, "..."]
    strength: Float[Array, ""] | float = 0.5
    bounds: tuple[float, float] | None = static(default=None)

    def __post_init__(self) -> None:
        values, bounds = check_values("values", self.values, self.bounds)
        if is_concrete(self.strength) and not 0 <= float(self.strength) < float("inf"):
            raise ValueError(f"strength must not be negative; got {self.strength}.")
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "bounds", bounds)
        object.__setattr__(self, "strength", as_float(self.strength).astype(values.dtype))

    def draw(self, key: MaybeKey, state: PyTree, episode: Episode, policy: Policy) -> Drawn:
        """The values after punishment."""
        assert policy is not None, "an adaptive process looks at the policy"
        punishment = self.strength * policy.astype(self.values.dtype)  # [L, S, A]
        return self._punish(punishment), state

    def _punish(self, punishment: Array) -> Array:
        assert self.bounds is not None
        low, high = self.bounds
        if self.values.ndim == 3:
            return jnp.clip(self.values - punishment, low, high)
        return jnp.clip(self.values + punishment[None], low, high)

    def extremes(self, episodes: Episodes = None) -> Extremes:
        """The full punishment of every action, an upper bound for every policy."""
        del episodes
        full = jnp.full(self.values.shape[-3:], self.strength, self.values.dtype)
        worst = self._punish(full) if self.values.ndim == 4 else self.values
        return Extremes(worst[None], exact=False)


# Beyond, the values of one period are not put side by side: 512 MB.
_MOST_NUMBERS = 2**26


def _period(value: object) -> Int[Array, ""]:
    if is_concrete(value):
        what = "a whole number of episodes"
        whole_number("period", value, accept=is_whole, what=what, shown=str)
    return jnp.asarray(value, jnp.int32)
