# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 4. Theory meets practice
#
# The paper proves bounds for step sizes that its proofs ask for. Which of them bite at horizons one
# can play, what do tuned rates change, and what happens when Slater's condition fails?

# %%
import jax
import numpy as np

from pdgd_jax import make, oracle, plots, sweep, theory

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# Two instances of one shape. In the first some policy satisfies the constraint with a margin
# rho > 0. In the second the margin is zero: it can be satisfied, but nothing is ever gained back.

# %%
options = {"sizes": [1, 3, 1], "num_actions": 2, "seed": 5}
for name in ("random", "no-slater"):
    cmdp = make(name, **options)
    rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho
    needed = theory.episodes_for_margin(rho, 2, 1)
    print(f"{name}: rho = {rho:.3f}; the condition on it holds from T = {needed or np.inf:.2g}")

# %% [markdown]
# So the condition of the strongest theorem is out of reach already. One sweep plays it all: both
# instances, both kinds of rates, the paper's confidence radius and a tenth of it, three horizons.

# %%
data = sweep(
    {
        "seeds": 4,
        "checkpoints": 50,
        "instance": [{"make": "random", **options}, {"make": "no-slater", **options}],
        "settings": {
            "horizon": [1000, 3000, 10_000],
            "rates": ["tuned", "theory"],
            "confidence_scale": [1.0, 0.1],
        },
        "learners": {"names": "pdgd-ops"},
    }
)
longest = data.isel(horizon=-1)
small = {"confidence_scale": 0.1}

# %% [markdown]
# ## Tuned rates against those of the proofs

# %%
plots.multipliers(longest.sel(instance="random", **small));

# %% [markdown]
# Rates of the proofs hardly move the multiplier. So nobody pays for violating the constraint, and
# the violation grows in proportion to the episodes:

# %%
plots.violation(longest.sel(instance="random", **small));

# %% [markdown]
# This is no mistake of the paper: its constants make the proof work for every CMDP, and pay off
# after some 10^9 episodes. To use the algorithm, use `rates="tuned"`; to check the theorems,
# "theory".
#
# ## Bounds against measurements
#
# Theorems are about the paper's own radius. With it the sets are so wide that the learner knows
# little about the transitions for a long time; the regret is far below its bound all the same.

# %%
paper = longest.sel(instance="random", confidence_scale=1.0)
plots.regret(paper, bounds=True);

# %%
plots.certificates(paper);

# %% [markdown]
# Each dot is a guarantee of a run, measured over bound. Some do not apply, and say why:

# %%
for rates in ("theory", "tuned"):
    one = paper.sel(rates=rates).isel(seed=0).squeeze()
    for name in one.certificate.values:
        reason = one.certificate_reason.sel(certificate=name).item()
        if reason:
            print(f"{rates}, {name}: {reason}")

# %% [markdown]
# ## Without Slater's condition
#
# The paper promises T^(3/4) instead of T^(1/2). Multipliers have no bound but their box, and every
# early mistake stays in the sum.

# %%
plots.violation(longest.sel(rates="tuned", **small));

# %% [markdown]
# With a margin the violation is paid back and swings; without, it only grows, ever more slowly. How
# it grows with the horizon is a slope in this figure, where each horizon is a run of its own:

# %%
plots.horizons(data.sel(instance="no-slater", rates="tuned", **small), quantities=("violation",));

# %% [markdown]
# Three horizons and four seeds are few. `python benchmarks/rates.py` fits such slopes over five
# horizons and many seeds, for twelve instances, and judges them against the paper's.
