"""Constrained MDPs: an MDP with processes that produce its rewards and constraints."""

import warnings
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, Key, PyTree

from pdgd_jax._internal.pytree import is_concrete, pytree, static
from pdgd_jax.models._layers import Layers
from pdgd_jax.models._mdp import LayeredMDP
from pdgd_jax.processes import CONSTRAINT_BOUNDS, REWARD_BOUNDS, Constant, Process, check_range

__all__ = ["CMDP", "EpisodesWarning", "Outcome", "RewardUnits", "stack"]


class EpisodesWarning(UserWarning):
    """A CMDP made for one number of episodes is played for another."""


class Outcome(NamedTuple):
    """The rewards and constraints that one episode reveals.

    Attributes:
      reward: `[L, S, A]`, $r_t$ in [0, 1].
      constraints: `[m, L, S, A]`, $G_t$ in [-1, 1]; a constraint is satisfied when not positive.
    """

    reward: Float[Array, "layers states actions"]
    constraints: Float[Array, "m layers states actions"]


class RewardUnits(NamedTuple):
    """The map from rewards in [0, 1] to the units of the original environment.

    An episode that earns v here earns `offset + scale * v` there.

    Attributes:
      scale: how much a reward of 1 is worth in the environment.
      offset: how much an episode that earns 0 here earns in the environment.
    """

    scale: float
    offset: float

    def to_environment(self, value: float, num_episodes: float = 1) -> float:
        """Convert the total reward `value` of `num_episodes` episodes to the environment's units.

        Example:
          >>> RewardUnits(scale=100.0, offset=-2000.0).to_environment(19.87)
          -13.0
        """
        return float(num_episodes * self.offset + self.scale * value)


@pytree
class CMDP:
    r"""The paper's tuple $M = (X, A, P, \{r_t\}, \{G_t\})$.

    Args:
      mdp: states, actions and transitions.
      rewards: the process of $r_t$; an array `[L, S, A]` means constant rewards.
      constraints: the process of $G_t$; an array `[m, L, S, A]` means constant constraints.
      units: the units of the rewards before they were mapped to [0, 1], if they were. Padding drops
        them, so that CMDPs of different units can be stacked.

    Raises:
      ValueError: if a process has another shape than the MDP, or leaves its range.

    Example:
      >>> import numpy as np
      >>> layers = Layers.from_sizes((1, 1), num_actions=2)
      >>> mdp = LayeredMDP(layers, np.ones((1, 1, 2, 1)))
      >>> CMDP(mdp, rewards=np.array([[[1.0, 0.2]]]), constraints=np.array([[[[0.5, -0.5]]]]))
      CMDP(sizes=(1, 1), num_actions=2, num_constraints=1, rewards=Constant, constraints=Constant)
    """

    mdp: LayeredMDP
    rewards: Process
    constraints: Process
    units: RewardUnits | None = static(default=None, kw_only=True)
    num_constraints: int = static(default=0, init=False)
    # Set on the object that `make` returns, and lost in copies. It is not part of the tree, so that
    # instances made for different numbers of episodes share one compiled program.
    made_for: ClassVar[int | None] = None

    def __post_init__(self) -> None:
        for name in ("rewards", "constraints"):
            process = getattr(self, name)
            if not isinstance(process, Process):
                object.__setattr__(self, name, Constant(process))
        shape = self.mdp.layers.shape
        reward_shape = self._drawn_shape("rewards")
        if reward_shape != shape:
            raise ValueError(
                f"rewards must have the shape [L, S, A] = {shape} of the MDP; got {reward_shape}."
            )
        constraint_shape = self._drawn_shape("constraints")
        if constraint_shape == shape:
            raise ValueError(
                f"constraints must have the shape [m, L, S, A]; got {shape}. For one constraint, "
                "put an axis of length 1 in front."
            )
        if constraint_shape[1:] != shape:
            raise ValueError(
                f"constraints must have the shape [m, L, S, A] = (m, {str(shape)[1:-1]}) of the "
                f"MDP; got {constraint_shape}."
            )
        if constraint_shape[0] == 0:
            raise ValueError(
                "m = 0: at least one constraint is needed (one that always holds is -1 everywhere)."
            )
        object.__setattr__(self, "num_constraints", constraint_shape[0])
        self._check_first_draw()

    @property
    def layers(self) -> Layers:
        """The layers of the MDP."""
        return self.mdp.layers

    def init(self, key: Key[Array, ""]) -> PyTree:
        """The state of the two processes before the first episode."""
        reward_key, constraint_key = jax.random.split(key)
        return self.rewards.init(reward_key), self.constraints.init(constraint_key)

    def draw(
        self,
        key: Key[Array, ""],
        state: PyTree,
        episode: Int[Array, ""] | int,
        policy: Float[Array, "layers states actions"],
    ) -> tuple[Outcome, PyTree]:
        """Draw the outcome of `episode` (0, 1, ...) and the next state of the processes.

        Values are exactly 0 outside the masks. A value outside its range becomes NaN, so that a
        faulty process cannot go unnoticed.
        """
        episode = jnp.asarray(episode, jnp.int32)
        reward_key, constraint_key = jax.random.split(key)
        reward, reward_state = self.rewards.draw(reward_key, state[0], episode, policy)
        costs, constraint_state = self.constraints.draw(constraint_key, state[1], episode, policy)
        mask = self.layers.action_mask
        outcome = Outcome(
            _within(reward, REWARD_BOUNDS, mask), _within(costs, CONSTRAINT_BOUNDS, mask[None])
        )
        return outcome, (reward_state, constraint_state)

    def note_episodes(self, num_episodes: int) -> None:
        """Record the number of episodes this was made for; see `check_episodes`."""
        object.__setattr__(self, "made_for", num_episodes)

    def check_episodes(self, num_episodes: int) -> None:
        """Warn if `make` built this for another number of episodes than are played."""
        if self.made_for is not None and self.made_for != num_episodes:
            warnings.warn(
                f"the instance was made for {self.made_for:,} episodes (its option num_episodes) "
                f"and is played for {num_episodes:,}: make the two equal, unless that is meant.",
                EpisodesWarning,
                stacklevel=3,
            )

    def check_lasts(self, num_episodes: int) -> None:
        """Raise if a table of rewards or constraints has fewer episodes."""
        for name, process in (("rewards", self.rewards), ("constraints", self.constraints)):
            if process.num_episodes is not None and process.num_episodes < num_episodes:
                raise ValueError(
                    f"the table of {name} has {process.num_episodes} episodes, fewer than the "
                    f"{num_episodes} to run."
                )

    def pad_to(self, shape: tuple[int, int, int], like: Sequence[Layers] = ()) -> "CMDP":
        """The same CMDP inside a larger padded `(L, S, A)`; `like` as in `Layers.pad_to`."""
        old = self.layers.shape
        return CMDP(
            self.mdp.pad_to(shape, like),
            self.rewards.pad(old, shape),
            self.constraints.pad(old, shape),
        )

    def _drawn_shape(self, name: str) -> tuple[int, ...]:
        process: Process = getattr(self, name)

        def first(key: Array, policy: Array) -> tuple[Array, PyTree]:
            return process.draw(key, process.init(key), jnp.zeros((), jnp.int32), policy)

        policy = jax.ShapeDtypeStruct(self.layers.shape, self.mdp.transition.dtype)
        values, _ = jax.eval_shape(first, jax.random.key(0), policy)
        return tuple(values.shape)

    def _check_first_draw(self) -> None:
        """Raise if a process is out of range in its first episode."""
        if not is_concrete(*jax.tree.leaves(self)):
            return
        policy = self.layers.uniform_policy(self.mdp.transition.dtype)
        mask = np.asarray(self.layers.action_mask)
        for name, bounds, what in (
            ("rewards", REWARD_BOUNDS, "a reward"),
            ("constraints", CONSTRAINT_BOUNDS, "a constraint"),
        ):
            process = getattr(self, name)
            if _is_checked(process):
                continue
            key = jax.random.key(0)
            values, _ = process.draw(key, process.init(key), jnp.zeros((), jnp.int32), policy)
            check_range(name, np.where(mask, np.asarray(values), 0), bounds, what)

    def __repr__(self) -> str:
        inside = str(self.layers).removeprefix("Layers(").removesuffix(")")
        return (
            f"CMDP({inside}, num_constraints={self.num_constraints}, "
            f"rewards={type(self.rewards).__name__}, "
            f"constraints={type(self.constraints).__name__})"
        )


def _is_checked(process: Process) -> bool:
    """Whether the constructors of the process and of its parts check every value it can produce."""
    parts = [part for part in vars(process).values() if isinstance(part, Process)]
    return process.checks_values and all(_is_checked(part) for part in parts)


def _within(values: Array, bounds: tuple[float, float], mask: Array) -> Array:
    low, high = bounds
    slack = 1e-6 * (high - low)
    legal = (values >= low - slack) & (values <= high + slack)
    return jnp.where(mask, jnp.where(legal, values, jnp.nan), 0)


def stack(cmdps: Sequence[CMDP]) -> CMDP:
    """Pad CMDPs to a common shape and stack them, for `vmap`.

    Args:
      cmdps: CMDPs with the same number of constraints and the same kinds of process; their sizes
        may differ.

    Returns:
      A CMDP in which every leaf has a leading axis for the instances. Use it under `jax.vmap`.

    Raises:
      ValueError: if there is nothing to stack, or the CMDPs differ in more than their sizes.

    Example:
      >>> import jax
      >>> from pdgd_jax import make, occupancy_of
      >>> both = stack([make("random", sizes=(1, 3, 1)), make("random", sizes=(1, 5, 5, 1))])
      >>> uniform = jax.vmap(lambda cmdp: cmdp.layers.uniform_policy())(both)
      >>> jax.vmap(lambda cmdp, policy: occupancy_of(cmdp.mdp, policy))(both, uniform).shape
      (2, 3, 5, 3, 5)
    """
    if not cmdps:
        raise ValueError("stack needs at least one CMDP.")
    shapes = np.array([cmdp.layers.shape for cmdp in cmdps])
    L, S, A = (int(n) for n in shapes.max(0))
    known = [cmdp.layers.successors is not None for cmdp in cmdps]
    if len(set(known)) > 1:
        raise ValueError(
            f"instance {known.index(True)} has successor lists and instance {known.index(False)} "
            "has none; stack needs them in all or in none."
        )
    layers = [cmdp.layers for cmdp in cmdps]
    padded = [cmdp.pad_to((L, S, A), layers) for cmdp in cmdps]
    first = padded[0]
    for index, other in enumerate(padded):
        if other.num_constraints != first.num_constraints:
            raise ValueError(
                f"instances 0 and {index} have {first.num_constraints} and "
                f"{other.num_constraints} constraints; stack needs the same number."
            )
        for name in ("rewards", "constraints"):
            _check_alike(getattr(first, name), getattr(other, name), name, index)
        if other.mdp.transition.dtype != first.mdp.transition.dtype:
            raise ValueError(
                f"instances 0 and {index} are {first.mdp.transition.dtype} and "
                f"{other.mdp.transition.dtype}; stack needs one floating point type."
            )
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *padded)


def _check_alike(first: Process, other: Process, name: str, index: int) -> None:
    structures = {jax.tree.structure(first), jax.tree.structure(other)}
    if len(structures) > 1:
        raise ValueError(
            f"the {name} of instances 0 and {index} are {type(first).__name__} and "
            f"{type(other).__name__}, or are set up differently; stack needs the same kind of "
            "process with the same settings."
        )
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(other), strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValueError(
                f"the {name} of instances 0 and {index} hold arrays {a.dtype}{list(a.shape)} and "
                f"{b.dtype}{list(b.shape)} after padding; stack needs them alike."
            )
