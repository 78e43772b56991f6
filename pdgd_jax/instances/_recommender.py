"""Recommendations that must be harmless and teach a little."""

import numpy as np

from pdgd_jax._internal.checks import whole_number
from pdgd_jax.instances._build import at_most
from pdgd_jax.models import CMDP, unroll
from pdgd_jax.processes import around

__all__ = ["recommender"]


def recommender(
    horizon: int = 5,
    offence_budget: float = 0.3,
    education_target: float = 1.0,
    rewards: str = "bernoulli",
    constraints: str = "bernoulli",
    support: str = "unknown",
) -> CMDP:
    """A recommender keeps a user engaged without showing offensive items, and teaches a little.

    The state is the user's engagement (4 levels), the action the kind of item: educational, light,
    provocative or offensive. The spicier the item, the more clicks and the more engagement. The
    first constraint limits the expected number of reports, a measure of offence. The second asks
    for a number of educational items. One is an upper limit, the other a lower limit.

    Default: sizes (1, 3, 4, 4, 4, 1), A = 4, m = 2; OPT = 1.3251,
    without constraints 2.4119, rho = 0.3000.

    Args:
      horizon: items of an episode.
      offence_budget: expected number of reports, at most.
      education_target: expected number of educational items, at least.
      rewards: the kind of process (`pdgd_jax.processes.KINDS`).
      constraints: the kind of process.
      support: "unknown", or "known": the learner is told which states can follow each pair.
    """
    engagement = np.arange(4)
    up = np.array([0.15, 0.35, 0.55, 0.7])  # the chance that an item raises engagement
    down = np.array([0.35, 0.2, 0.2, 0.25])
    P = (
        up[:, None] * np.eye(4)[np.minimum(engagement + 1, 3)][:, None, :]
        + down[:, None] * np.eye(4)[np.maximum(engagement - 1, 0)][:, None, :]
        + (1 - up - down)[:, None] * np.eye(4)[:, None, :]
    )
    mdp = unroll(P, start=1, horizon=whole_number("horizon", horizon, 1), support=support)
    appeal = np.array([0.2, 0.4, 0.6, 0.7])
    clicks = (engagement[:, None] + 1) / 4 * appeal
    reports = np.broadcast_to(np.array([0.0, 0.02, 0.2, 0.8]), (4, 4))
    teaches = np.broadcast_to(np.array([1.0, 0.0, 0.0, 0.0]), (4, 4))
    if not 0 <= education_target <= horizon:
        raise ValueError(f"education_target lies in [0, {horizon}]; got {education_target}.")
    G = np.stack(
        [
            at_most(mdp, mdp.from_flat(reports), offence_budget, "offence_budget"),
            # "At least" of the educational items means "at most" of the others.
            at_most(mdp, mdp.from_flat(1 - teaches), horizon - education_target),
        ]
    )
    return CMDP(mdp, around(mdp.from_flat(clicks), rewards), around(G, constraints))
