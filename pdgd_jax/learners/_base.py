"""The interface of a learner: three pure functions and the problem it was built for."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, ArrayLike, Float, Int, PyTree

from pdgd_jax._internal.checks import are_counts, whole_number
from pdgd_jax._internal.pytree import is_concrete, pytree, static
from pdgd_jax._internal.typing import OneKey
from pdgd_jax.models import CMDP, Layers, Outcome, Trajectory
from pdgd_jax.projection import ConfidenceSet, EntropicInfo, ProjectionInfo

__all__ = ["Info", "Learner", "Rates", "Setting", "check_fits", "check_setting"]


class Rates(NamedTuple):
    r"""The two constants that fix every step size.

    Attributes:
      primal: $C$ in the step $\eta_t = 1 / (\bar\ell_t C \sqrt T)$ of the primal player.
      dual: $\eta$, the step of the dual player.
    """

    primal: Float[Array, ""]
    dual: Float[Array, ""]


@pytree
class Setting:
    """The problem a learner was built for. `run` checks it, and bounds are computed from it.

    Attributes:
      layers: the states and actions.
      delta: the confidence parameter.
      rates: the constants of the step sizes; None if the bounds do not hold for them.
      confidence_scale: the factor of the paper's radius.
      num_episodes: T; None if the learner does not depend on it.
      num_constraints: m; None if the learner ignores constraints.
      constants: the constants of a rival's algorithm by name, for its guarantees.
      kind: the algorithm whose guarantees hold, beside those of `rates`; empty for none. Learners
        of one kind share it, and with it a compiled program: what differs among them is a number.
    """

    layers: Layers
    delta: Float[Array, ""] | None = None
    rates: Rates | None = None
    confidence_scale: Float[Array, ""] | None = None
    num_episodes: Int[Array, ""] | None = None
    num_constraints: int | None = static(default=None)
    constants: dict[str, Float[Array, ""]] = dataclasses.field(default_factory=dict)
    kind: str = static(default="")

    @property
    def knows_transitions(self) -> bool:
        """Whether the learner of this kind knows the transitions."""
        return self.kind in _KNOWING


# The kinds of learners that know the transitions.
_KNOWING = ("known", "o-reps", "queues", "unifying-entropic", "unifying-euclidean")


class Info(NamedTuple):
    r"""What a learner reports about an episode; None for quantities that it does not have.

    Attributes:
      occupancy: over the triples, the $\hat q_t$ whose policy was played.
      confidence: the set on which $\hat q_t$ was projected.
      multipliers: `[m]`, $\lambda_t$.
      next_multipliers: `[m]`, $\lambda_{t+1}$.
      loss: `[L, S, A]`, $\ell_t$.
      epoch: $i$, after the episode.
      projection: how well the projection to $\hat q_{t+1}$ was solved.
      next_occupancy: over the triples, the $\hat q_{t+1}$ that the multipliers have seen; None if
        they have seen $\hat q_t$.
    """

    occupancy: Float[Array, "layers *triples"] | None = None
    confidence: ConfidenceSet | None = None
    multipliers: Float[Array, " m"] | None = None
    next_multipliers: Float[Array, " m"] | None = None
    loss: Float[Array, "layers states actions"] | None = None
    epoch: Int[Array, ""] | None = None
    projection: ProjectionInfo | EntropicInfo | None = None
    next_occupancy: Float[Array, "layers *triples"] | None = None


class Learner(NamedTuple):
    """An online learner of CMDPs, as pure functions.

    Functions that are `jax.tree_util.Partial` carry their settings as leaves, so that a learner is
    a pytree: a sweep over settings is a `vmap` over learners, and a new step size does not
    recompile. Plain functions work too.

    Attributes:
      init: `key -> state`, before the first episode.
      policy: `state -> [L, S, A]`, the policy to play.
      update: `(state, trajectory, outcome) -> (state, Info)`, after an episode. It receives the
        trajectory that was played and the rewards and constraints that were revealed.
      setting: the problem it was built for; None if `run` need not check anything.

    Example:
      A learner that always plays the first action:

      >>> import jax
      >>> from pdgd_jax import Learner, make, run
      >>> from pdgd_jax.learners import Info
      >>> cmdp = make("random")
      >>> stubborn = Learner(
      ...     init=lambda key: (),
      ...     policy=lambda state: cmdp.layers.action_mask.at[..., 1:].set(False).astype(float),
      ...     update=lambda state, trajectory, outcome: (state, Info()),
      ... )
      >>> history = run(jax.random.key(0), cmdp, stubborn, num_episodes=100)
      >>> history.reward.shape
      (100,)
    """

    init: Callable[[OneKey], PyTree]
    policy: Callable[[PyTree], Float[Array, "layers states actions"]]
    update: Callable[[PyTree, Trajectory, Outcome], tuple[PyTree, Info]]
    setting: Setting | None = None

    def as_pytree(self) -> "Learner":
        """The same learner with its plain functions as part of the tree's structure."""

        def as_partial(function: Callable[..., object]) -> Partial:
            return function if isinstance(function, Partial) else Partial(function)

        functions = as_partial(self.init), as_partial(self.policy), as_partial(self.update)
        return Learner(*functions, setting=self.setting)


def check_setting(
    num_episodes: ArrayLike,
    delta: ArrayLike | None = None,
    confidence_scale: ArrayLike | None = None,
    num_constraints: object = None,
) -> None:
    """Raise if a number is invalid; traced values are not checked."""
    if is_concrete(num_episodes) and not are_counts(num_episodes):
        raise ValueError(f"num_episodes must be a whole number, at least 1; got {num_episodes!r}.")
    if num_constraints is not None:
        whole_number("num_constraints", num_constraints)
    if delta is not None and is_concrete(delta) and not _is_inside(delta):
        raise ValueError(f"delta must lie strictly between 0 and 1; got {delta}.")
    if confidence_scale is not None and is_concrete(confidence_scale):
        scale = np.asarray(confidence_scale)
        if not np.all(np.isfinite(scale) & (scale >= 0)):
            raise ValueError(
                f"confidence_scale must be finite and at least 0; got {confidence_scale}."
            )


def _is_inside(delta: ArrayLike) -> bool:
    number = np.asarray(delta)
    return bool(np.all((number > 0) & (number < 1)))


def check_fits(learner: Learner, cmdp: CMDP, num_episodes: int) -> None:
    """Raise if the learner was built for another problem."""
    setting = learner.setting
    shape = cmdp.layers.shape
    if setting is not None:
        if setting.layers.shape != shape:
            raise ValueError(
                f"the learner was built for layers of shape (L, S, A) = {setting.layers.shape}, "
                f"the CMDP has {shape}; build it with the layers of the CMDP, cmdp.layers."
            )
        masks = (setting.layers.action_mask, cmdp.layers.action_mask)
        if is_concrete(*masks) and not np.array_equal(np.asarray(masks[0]), np.asarray(masks[1])):
            raise ValueError(
                f"the learner was built for {setting.layers}, the CMDP has {cmdp.layers}; "
                "build it with the layers of the CMDP, cmdp.layers."
            )
        if setting.num_constraints not in (None, cmdp.num_constraints):
            raise ValueError(
                f"the learner was built for {setting.num_constraints} constraints, the CMDP has "
                f"{cmdp.num_constraints}."
            )
        built_for = setting.num_episodes
        known = built_for is not None and is_concrete(built_for)
        if known and num_episodes > np.min(np.asarray(built_for)):
            raise ValueError(
                f"the learner was built for {built_for} episodes, fewer than the "
                f"{num_episodes} to run: its step sizes and confidence sets hold for those only."
            )
        return
    state = jax.eval_shape(learner.init, jax.random.key(0))
    played = jax.eval_shape(learner.policy, state)
    if getattr(played, "shape", None) != shape:
        raise ValueError(
            f"the learner's policy must have the shape [L, S, A] = {shape} of the CMDP; "
            f"got {getattr(played, 'shape', played)}."
        )
