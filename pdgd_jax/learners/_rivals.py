"""The rivals of PDGD-OPS, built for a CMDP: what they know is taken from it here."""

from collections.abc import Callable

from jaxtyping import ArrayLike

from pdgd_jax import oracle
from pdgd_jax.learners._base import Learner
from pdgd_jax.learners._rates import RatesLike
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
    if rho is None:
        rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints, num_episodes).rho
        if not rho > 0:
            raise ValueError(
                "the learner 'unifying' must know a margin rho > 0, and here no policy satisfies "
                f"the constraints strictly: rho is {rho:.4g}. Pass another rho to play it anyway."
            )
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


RIVALS: dict[str, Callable[..., Learner]] = {
    "pdgd-ops-known": _pdgd_ops_known,
    "uc-o-reps": _uc_o_reps,
    "o-reps": _o_reps,
    "ucpd": _ucpd,
    "unifying": _unifying,
    "wei-yu-neely": _wei_yu_neely,
    "cold": _cold,
}
