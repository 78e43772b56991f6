"""The rivals of PDGD-OPS, built for a CMDP: what they know is taken from it here."""

from collections.abc import Callable

from jaxtyping import ArrayLike

from pdgd_jax import oracle
from pdgd_jax.learners._base import Learner
from pdgd_jax.learners._rates import RatesLike
from pdgd_jax.learners.optimistic import opt_cmdp, opt_cmdp_bonus, opt_dual, opt_primal_dual
from pdgd_jax.learners.primal_dual import (
    cold,
    o_reps,
    pdgd_ops,
    uc_o_reps,
    ucpd,
    unifying,
    wei_yu_neely,
)
from pdgd_jax.models import CMDP
from pdgd_jax.projection import Solver

__all__ = ["RIVALS"]


def _pdgd_ops_known(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    rates: RatesLike = "tuned",
    solver: str | Solver = "newton",
) -> Learner:
    """PDGD-OPS that knows the transitions."""
    m, P = cmdp.num_constraints, cmdp.mdp.transition
    return pdgd_ops(cmdp.layers, m, num_episodes, rates=rates, solver=solver, transition=P)


def _uc_o_reps(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
    eta: ArrayLike | None = None,
) -> Learner:
    """UC-O-REPS: entropic mirror descent; no constraints."""
    return uc_o_reps(
        cmdp.layers, num_episodes, delta=delta, confidence_scale=confidence_scale, eta=eta
    )


def _o_reps(cmdp: CMDP, num_episodes: ArrayLike, *, eta: ArrayLike | None = None) -> Learner:
    """O-REPS: entropic mirror descent with known transitions; no constraints."""
    return o_reps(cmdp.mdp, num_episodes, eta=eta)


def _ucpd(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
    V: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
    mixing: ArrayLike | None = None,
) -> Learner:
    """UCPD: entropic mirror descent against virtual queues."""
    return ucpd(
        cmdp.layers,
        cmdp.num_constraints,
        num_episodes,
        delta=delta,
        confidence_scale=confidence_scale,
        V=V,
        alpha=alpha,
        mixing=mixing,
    )


def _wei_yu_neely(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    V: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
) -> Learner:
    """Wei, Yu and Neely: projected gradients against virtual queues, known transitions."""
    return wei_yu_neely(cmdp.mdp, cmdp.num_constraints, num_episodes, V=V, alpha=alpha)


def _cold(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    epsilon: ArrayLike = 0.5,
    V: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
) -> Learner:
    """COLD: the same for adversarial constraints, with other weights."""
    m = cmdp.num_constraints
    return cold(cmdp.mdp, m, num_episodes, epsilon=epsilon, V=V, alpha=alpha)


def _unifying(
    cmdp: CMDP,
    num_episodes: int,
    *,
    rho: ArrayLike | None = None,
    rho_scale: ArrayLike = 1.0,
    mirror: str = "entropic",
    ceiling: ArrayLike | None = None,
    eta: ArrayLike | None = None,
    dual_step: ArrayLike | None = None,
) -> Learner:
    """The unifying framework: known transitions, and multipliers below L / rho.

    `rho` is that of the CMDP by default. `rho_scale` is its factor, to see what a wrong one costs.
    """
    rho = _margin("unifying", cmdp, num_episodes) if rho is None else rho
    return unifying(
        cmdp.mdp,
        cmdp.num_constraints,
        num_episodes,
        rho=rho * rho_scale,
        mirror=mirror,
        ceiling=ceiling,
        eta=eta,
        dual_step=dual_step,
    )


def _margin(name: str, cmdp: CMDP, num_episodes: int) -> float:
    """The margin of a CMDP, for a learner that must know it."""
    rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes).rho
    if not rho > 0:
        raise ValueError(
            f"the learner {name!r} must know a margin rho > 0, and here no policy satisfies "
            f"the constraints strictly: rho is {rho:.4g}. Pass another rho to play it anyway."
        )
    return rho


def _opt_cmdp(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
) -> Learner:
    """OptCMDP: an optimistic linear program in every episode; bandit feedback."""
    m = cmdp.num_constraints
    return opt_cmdp(cmdp.layers, m, num_episodes, delta=delta, confidence_scale=confidence_scale)


def _opt_cmdp_bonus(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
) -> Learner:
    """OptCMDP-bonus: the same for the estimated transitions, with larger bonuses."""
    m = cmdp.num_constraints
    return opt_cmdp_bonus(
        cmdp.layers, m, num_episodes, delta=delta, confidence_scale=confidence_scale
    )


def _opt_dual(
    cmdp: CMDP,
    num_episodes: int,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
    rho: ArrayLike | None = None,
    dual_step: ArrayLike | None = None,
) -> Learner:
    """OptDual-CMDP: an optimistic plan against multipliers; bandit feedback, knows rho."""
    return opt_dual(
        cmdp.layers,
        cmdp.num_constraints,
        num_episodes,
        rho=_margin("opt-dual", cmdp, num_episodes) if rho is None else rho,
        delta=delta,
        confidence_scale=confidence_scale,
        dual_step=dual_step,
    )


def _opt_primal_dual(
    cmdp: CMDP,
    num_episodes: int,
    *,
    delta: ArrayLike = 0.05,
    confidence_scale: ArrayLike = 1.0,
    rho: ArrayLike | None = None,
    step: ArrayLike | None = None,
    dual_step: ArrayLike | None = None,
    ceiling: ArrayLike | None = None,
) -> Learner:
    """OptPrimalDual-CMDP: steps of the policy and the multipliers; bandit feedback, knows rho."""
    return opt_primal_dual(
        cmdp.layers,
        cmdp.num_constraints,
        num_episodes,
        rho=_margin("opt-primal-dual", cmdp, num_episodes) if rho is None else rho,
        delta=delta,
        confidence_scale=confidence_scale,
        step=step,
        dual_step=dual_step,
        ceiling=ceiling,
    )


RIVALS: dict[str, Callable[..., Learner]] = {
    "pdgd-ops-known": _pdgd_ops_known,
    "uc-o-reps": _uc_o_reps,
    "o-reps": _o_reps,
    "ucpd": _ucpd,
    "unifying": _unifying,
    "wei-yu-neely": _wei_yu_neely,
    "cold": _cold,
    "opt-cmdp": _opt_cmdp,
    "opt-cmdp-bonus": _opt_cmdp_bonus,
    "opt-dual": _opt_dual,
    "opt-primal-dual": _opt_primal_dual,
}
