"""The rivals of PDGD-OPS, built for a CMDP: what they know is taken from it and declared here.

Their descriptions are those of their files.
"""

from collections.abc import Callable

from jaxtyping import ArrayLike

from pdgd_jax.learners._base import Learner
from pdgd_jax.learners._declaration import declares, described_by
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


@declares(knows=["transitions", "horizon"])
def _pdgd_ops_known(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    rates: RatesLike = "tuned",
    solver: str | Solver = "newton",
) -> Learner:
    """PDGD-OPS that knows the transitions, to see what it costs not to know them.

    Reference:
      Germano, Stradi, Genalti, Castiglioni, Marchesi and Gatti (2023), A Best-of-Both-Worlds
      Algorithm for Constrained MDPs with Long-Term Constraints; not theirs in this form.
    """
    m, P = cmdp.num_constraints, cmdp.mdp.transition
    return pdgd_ops(cmdp.layers, m, num_episodes, rates=rates, solver=solver, transition=P)


@declares(knows=["horizon"])
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


@declares(knows=["transitions", "horizon"])
def _o_reps(cmdp: CMDP, num_episodes: ArrayLike, *, eta: ArrayLike | None = None) -> Learner:
    """O-REPS: entropic mirror descent with known transitions; no constraints."""
    return o_reps(cmdp.mdp, num_episodes, eta=eta)


@declares(knows=["horizon"])
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


@declares(knows=["transitions", "horizon"])
def _wei_yu_neely(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    V: ArrayLike | None = None,
    alpha: ArrayLike | None = None,
) -> Learner:
    """Wei, Yu and Neely: projected gradients against virtual queues, known transitions."""
    return wei_yu_neely(cmdp.mdp, cmdp.num_constraints, num_episodes, V=V, alpha=alpha)


@declares(knows=["transitions", "horizon"])
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


@declares(knows=["transitions", "rho", "horizon"])
def _unifying(
    cmdp: CMDP,
    num_episodes: ArrayLike,
    *,
    rho: ArrayLike | None = None,
    rho_scale: ArrayLike = 1.0,
    mirror: str = "entropic",
    ceiling: ArrayLike | None = None,
    eta: ArrayLike | None = None,
    dual_step: ArrayLike | None = None,
) -> Learner:
    """`make_learner` gives rho, that of the CMDP if it is None.

    `rho_scale` is its factor, to see what a wrong one costs.
    """
    assert rho is not None
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

for _builder, _constructor in (
    (_uc_o_reps, uc_o_reps),
    (_o_reps, o_reps),
    (_ucpd, ucpd),
    (_wei_yu_neely, wei_yu_neely),
    (_cold, cold),
    (_unifying, unifying),
):
    _builder.__doc__ = described_by(_constructor)
_unifying.__doc__ = (
    f"{_unifying.__doc__}\n  rho_scale: a factor of rho, to see what a wrong one costs."
)
