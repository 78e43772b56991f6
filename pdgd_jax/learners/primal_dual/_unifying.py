r"""The unifying framework of Castiglioni et al., on the occupancies of known transitions.

Full information; rewards and constraints are stochastic or adversarial. Its dual player lives in
$\{\lambda \ge 0 : \|\lambda\|_1 \le L / \rho\}$: unlike PDGD-OPS it must *know* the margin
$\rho$. The primal player descends on $\ell_t = G_t \lambda_t - r_t$ by O-REPS or by projected
gradients, the dual player ascends on $\lambda^\top G_t^\top q_t$.

Rewards and constraints of an episode are divided by $L$ to fit the framework, so that the margin
becomes $\rho / L$, and the share of the optimum against adversarial constraints
$\rho / (L + \rho)$, the one of PDGD-OPS.

Reference:
  Castiglioni, Celli, Marchesi, Romano and Gatti (2022), A Unifying Framework for Online
  Optimization with Long-Term Constraints. It leaves both players open; they are our choice, and
  that of $T^{1/4}$ for a small $\rho$ is not certain.
"""

import jax.numpy as jnp
from jaxtyping import ArrayLike

from pdgd_jax._internal.pytree import as_array
from pdgd_jax._internal.registry import nearest
from pdgd_jax.learners._base import Learner, Setting, check_setting
from pdgd_jax.learners.primal_dual import _dual as dual
from pdgd_jax.learners.primal_dual import _players as players
from pdgd_jax.learners.primal_dual import _primal as primal
from pdgd_jax.learners.primal_dual._constants import constant, sizes_of
from pdgd_jax.learners.primal_dual._mirrors import Entropic, Euclidean, Mirror
from pdgd_jax.learners.primal_dual._transitions import Given
from pdgd_jax.models import LayeredMDP

__all__ = ["MIRRORS", "unifying"]

MIRRORS: dict[str, Mirror] = {"entropic": Entropic(), "euclidean": Euclidean()}


def unifying(
    mdp: LayeredMDP,
    num_constraints: int,
    num_episodes: ArrayLike,
    *,
    rho: ArrayLike,
    mirror: str = "entropic",
    ceiling: ArrayLike | None = None,
    eta: ArrayLike | None = None,
    dual_step: ArrayLike | None = None,
) -> Learner:
    r"""The unifying framework as a learner for `run`.

    Args:
      mdp: the states, the actions and the true transitions, `cmdp.mdp`.
      num_constraints: $m$.
      num_episodes: $T$; may be traced, as all numbers.
      rho: the margin $\rho > 0$, `oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho`; by name,
        in `make_learner`, that is the default.
      mirror: "entropic" or "euclidean".
      ceiling: $R$, of the sum of the multipliers; by default $\min\{L / \rho, T^{1/4}\}$.
        $L / \rho$ and $T^{1/4}$ are not certain.
      eta: the step size of the primal player. By default, with $B = 1 + R$,
        $\sqrt{\ln(|X| |A| / L) / T} / B$ if entropic and, with $U$ pairs,
        $\sqrt{2 L / (U T)} / B$ if Euclidean.
      dual_step: the step size of the dual player; by default $R / (L \sqrt{m T})$. Both
        steps are our choice.

    Raises:
      ValueError: if a number is invalid; also if $\rho$ is not positive, or the mirror unknown.

    Example:
      >>> from pdgd_jax import make, oracle
      >>> from pdgd_jax.learners import unifying
      >>> cmdp = make("random")
      >>> rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho
      >>> learner = unifying(cmdp.mdp, cmdp.num_constraints, 10_000, rho=rho)
      >>> int(learner.setting.num_episodes)   # run(key, cmdp, learner, 10_000) plays it
      10000
    """
    check_setting(num_episodes, num_constraints=num_constraints)
    if mirror not in MIRRORS:
        hint = nearest(mirror, MIRRORS)
        raise ValueError(f"mirror must be one of {', '.join(MIRRORS)}; got {mirror!r}{hint}.")
    layers, m = mdp.layers, num_constraints
    xp, L, X, A, T = sizes_of(layers, num_episodes)
    margin = constant("rho", rho, lambda: None)
    R = constant("ceiling", ceiling, lambda: jnp.minimum(L / margin, T**0.25))
    pairs = xp.asarray(layers.action_mask.sum(), L.dtype)
    steps = {"entropic": xp.log(X * A / L), "euclidean": 2 * L / pairs}
    eta = constant("eta", eta, lambda: xp.sqrt(steps[mirror] / T) / (1 + R))
    dual_step = constant("dual_step", dual_step, lambda: R / (L * xp.sqrt(m * T)))
    player = primal.Config(
        layers, Given(mdp.transition), primal.Constant(eta), mirror=MIRRORS[mirror]
    )
    config = players.Config(player, dual_step, dual.Ball(R), m)
    episodes = as_array(num_episodes, jnp.int32)
    setting = Setting(
        layers,
        num_episodes=episodes,
        num_constraints=m,
        constants={"step": eta, "dual_step": dual_step, "ceiling": R},
        kind=f"unifying-{mirror}",
    )
    return players.together(config, setting)
