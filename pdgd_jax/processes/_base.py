"""The interface of a process, which produces the rewards or constraints of each episode."""

from typing import ClassVar, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, ArrayLike, DTypeLike, Float, Int, Key, PyTree

from pdgd_jax._internal.checks import first_place, place
from pdgd_jax._internal.pytree import as_array, as_float, is_concrete, numpy_for
from pdgd_jax._internal.typing import NDArray

__all__ = [
    "CONSTRAINT_BOUNDS",
    "REWARD_BOUNDS",
    "AdversarialProcess",
    "Extremes",
    "Foresight",
    "Process",
    "StochasticProcess",
    "Timetable",
    "foresight",
]

REWARD_BOUNDS = (0.0, 1.0)
CONSTRAINT_BOUNDS = (-1.0, 1.0)


class Extremes(NamedTuple):
    r"""The worst values that a process may take in some episodes.

    Attributes:
      values: `[n, ...]`, values that bound the cost of every occupancy $q \ge 0$ in every episode:
        $\max_t v_t^\top q \le \max_j \mathrm{values}_j^\top q$.
      exact: whether this is an equality for every $q$. Otherwise it is an upper bound, since the
        values depend on chance or on the policy.
    """

    values: Float[Array, "n ..."]
    exact: bool


class Timetable(NamedTuple):
    """The mean values of every episode, known before the first one is played.

    Attributes:
      values: `[n, ...]`, the values that occur.
      which: `[T]`, the position in `values` of each episode.
    """

    values: Float[NDArray, "n ..."]
    which: Int[NDArray, " episodes"]


# The arguments and results of a process. The policy may be None for a process that ignores it.
Episode: TypeAlias = Int[Array, ""] | int
Episodes: TypeAlias = Int[np.ndarray, " t"] | None
Policy: TypeAlias = Float[Array, "layers states actions"] | None
Drawn: TypeAlias = tuple[Float[Array, "..."], PyTree]


class Process:
    """Produces the reward `[L, S, A]` or the constraints `[m, L, S, A]` of each episode.

    To write one, derive from `StochasticProcess` or `AdversarialProcess`, decorate the class with
    `pytree` and define `draw`. Fields are arrays, so that `stack`, `vmap` and sweeps work. Rewards
    lie in [0, 1] and constraints in [-1, 1]. `CMDP` raises an error if it sees a value outside;
    inside compiled code such a value becomes NaN.

    Example:
      A reward that is `first` in even episodes and `second` in odd ones:

      >>> import jax.numpy as jnp
      >>> from pdgd_jax import make, CMDP
      >>> from pdgd_jax.processes import AdversarialProcess, pytree
      >>> @pytree
      ... class Alternating(AdversarialProcess):
      ...     first: jnp.ndarray
      ...     second: jnp.ndarray
      ...
      ...     def draw(self, key, state, episode, policy):
      ...         return jnp.where(episode % 2 == 0, self.first, self.second), state
      >>> cmdp = make("random")
      >>> shape = cmdp.mdp.layers.shape
      >>> CMDP(cmdp.mdp, Alternating(jnp.zeros(shape), jnp.ones(shape)), cmdp.constraints)
      CMDP(sizes=(1, 4, 4, 4, 1), num_actions=3, num_constraints=1,
           rewards=Alternating, constraints=Bernoulli)
    """

    # Whether the constructor checks every value that the process can produce, so that `CMDP` need
    # not draw one. Set in the class statement, and not inherited.
    checks_values: ClassVar[bool] = False

    def __init_subclass__(cls, *, checks_values: bool = False) -> None:
        super().__init_subclass__()
        cls.checks_values = checks_values

    @property
    def num_episodes(self) -> int | None:
        """How many episodes the process can produce; None for no limit."""
        return None

    def init(self, key: Key[Array, ""]) -> PyTree:
        """The state before the first episode; a pytree of arrays, by default empty."""
        del key
        return ()

    def draw(
        self,
        key: Key[Array, ""],
        state: PyTree,
        episode: Episode,
        policy: Policy,
    ) -> Drawn:
        """Draw the values of `episode` (0, 1, ...), and return them with the next state.

        An adaptive adversary may use the policy that the learner is about to play.
        """
        raise NotImplementedError(f"{type(self).__name__} must define draw.")

    def extremes(self, episodes: Episodes = None) -> Extremes:
        r"""The worst values in some episodes, known before they are played.

        They determine the margin $\rho$ of adversarial constraints, a minimum over all episodes.
        This method is optional: without it, $\rho$ is bounded by what a run has seen.

        Args:
          episodes: which episodes (0, 1, ...), at least one; None for all of them.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say which values it may take.")

    def timetable(self, num_episodes: int) -> Timetable:
        """The mean values of the first episodes, if they depend neither on chance nor on policies.

        The optimum of each episode and of windows of episodes is computed from them. This method is
        optional: without it, a process that depends on nothing is drawn, episode by episode.
        """
        del num_episodes
        raise NotImplementedError(f"{type(self).__name__} does not say what it will show.")

    def pad(self, old: tuple[int, int, int], new: tuple[int, int, int]) -> "Process":
        """The same process with every leaf `[..., L, S, A]` padded by zeros to a larger shape."""
        grow = [(0, b - a) for a, b in zip(old, new, strict=True)]

        def pad_leaf(leaf: Array) -> Array:
            if leaf.shape[-3:] != old:
                return leaf
            return as_array(numpy_for(leaf).pad(leaf, [(0, 0)] * (leaf.ndim - 3) + grow))

        return jax.tree.map(pad_leaf, self)


class StochasticProcess(Process):
    """Draws every episode independently from one distribution with a known mean."""

    def mean(self) -> Float[Array, "..."]:
        """The exact mean of every entry as it is drawn, after any clipping."""
        raise NotImplementedError(f"{type(self).__name__} must define mean.")

    def highest(self) -> Float[Array, "..."]:
        """The largest value that each entry may take; by default the end of the range."""
        mean = self.mean()
        top = REWARD_BOUNDS[1] if mean.ndim == 3 else CONSTRAINT_BOUNDS[1]
        return jnp.full_like(mean, top)

    def extremes(self, episodes: Episodes = None) -> Extremes:
        """The largest value of every entry at once, a bound that is hardly ever reached."""
        del episodes
        return Extremes(self.highest()[None], exact=False)

    def timetable(self, num_episodes: int) -> Timetable:
        """The same mean in every episode."""
        return Timetable(np.asarray(self.mean())[None], np.zeros(num_episodes, np.int32))


class AdversarialProcess(Process):
    """Chooses the values of every episode freely."""


class Foresight(NamedTuple):
    """What the values of a process depend on, besides the number of the episode.

    Attributes:
      chance: whether they depend on the key.
      policy: whether they depend on the policies that are played.
    """

    chance: bool
    policy: bool

    @property
    def known(self) -> bool:
        """Whether all episodes are known before the first one is played."""
        return not (self.chance or self.policy)


def foresight(process: Process, shape: tuple[int, int, int], dtype: DTypeLike = float) -> Foresight:
    """Find out from its program what the values of a process depend on.

    Args:
      process: any process, including a user's.
      shape: the shape `(L, S, A)` of the policies that it sees.
      dtype: the type of those policies.
    """

    def first(init_key: Array, key: Array, policy: Array) -> Drawn:
        return process.draw(key, process.init(init_key), jnp.zeros((), jnp.int32), policy)

    key = jax.random.key(0)
    program = jax.make_jaxpr(first)(key, key, jax.ShapeDtypeStruct(shape, dtype)).jaxpr
    # Backwards from the outputs: the inputs of everything needed are needed.
    needed = {id(variable) for variable in program.outvars}
    for equation in reversed(program.eqns):
        if any(id(variable) in needed for variable in equation.outvars):
            needed |= {id(variable) for variable in equation.invars}
    init_key, draw_key, policy = (id(variable) in needed for variable in program.invars)
    return Foresight(chance=init_key or draw_key, policy=policy)


def check_values(
    name: str,
    values: ArrayLike,
    bounds: tuple[float, float] | None = None,
    *,
    leading: int = 0,
) -> tuple[Float[Array, "..."], tuple[float, float]]:
    """Check `values`, and return them as a float array with the bounds that their rank implies.

    Args:
      name: the name of the values, for the error.
      values: `[L, S, A]` for a reward, `[m, L, S, A]` for constraints, behind `leading` axes.
      bounds: bounds narrower than those of a reward or a constraint.
      leading: the number of axes (time, phases) before that shape.

    Raises:
      ValueError: if the shape or a value is not allowed.
    """
    rank = np.ndim(values) - leading
    before = "" if leading == 0 else "n, " * leading
    if rank not in (3, 4):
        raise ValueError(
            f"{name} must have the shape [{before}L, S, A] of a reward or [{before}m, L, S, A] of "
            f"constraints; got {np.shape(values)}."
        )
    if 0 in np.shape(values):
        raise ValueError(
            f"{name} is empty, of shape {np.shape(values)}; at least one constraint, episode, "
            "layer, state and action is needed (a constraint that always holds is -1 everywhere)."
        )
    legal = REWARD_BOUNDS if rank == 3 else CONSTRAINT_BOUNDS
    low, high = legal if bounds is None else bounds
    if not legal[0] <= low < high <= legal[1]:
        raise ValueError(f"bounds must be increasing and within {legal}; got {(low, high)}.")
    if is_concrete(values):
        check_range(
            name, np.asarray(values), (low, high), "a reward" if rank == 3 else "a constraint"
        )
    return as_float(values), (float(low), float(high))


def check_range(name: str, values: NDArray, bounds: tuple[float, float], what: str) -> None:
    """Raise a `ValueError` that says where `values`, `[..., L, S, A]`, leave `bounds`."""
    low, high = bounds
    # A value rounded to float32 may exceed its bound in the last bit.
    slack = 1e-6 * (high - low)
    with np.errstate(invalid="ignore"):
        wrong = ~((values >= low - slack) & (values <= high + slack))
    where = first_place(wrong)
    if where is not None:
        before = list(where[:-3])
        at = place(where[-3:]) + (f" (index {before})" if before else "")
        raise ValueError(
            f"{name} of {at} is {values[where]:.6g}; {what} lies in [{low:g}, {high:g}]."
        )
