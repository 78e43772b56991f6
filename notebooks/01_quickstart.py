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
# # 1. Quick start
#
# Make an instance, run PDGD-OPS on it with a few seeds, look at the result: ten lines of code.
# Most of the time is compilation.

# %%
import jax

from pdgd_jax import dataset_of, evaluate, make, pdgd_ops, plots, run

jax.config.update("jax_enable_x64", True)
cmdp = make("random", sizes=(1, 3, 1), num_actions=2, seed=5)
T = 3000
learner = pdgd_ops(cmdp.layers, cmdp.num_constraints, T, confidence_scale=0.3)
keys = jax.random.split(jax.random.key(0), 8)
history = jax.vmap(lambda key: run(key, cmdp, learner, T))(keys)
data = dataset_of(history, evaluate(history, cmdp))
plots.regret(data);

# %% [markdown]
# The line is the median over seeds, the band lies between the 10% and the 90% quantile. Regret is
# measured against the best policy that satisfies the constraint, and may well be negative: whoever
# violates the constraint earns more. Do we?

# %%
plots.violation(data);

# %% [markdown]
# At first, yes. Then the dual player raises the price of the constraint, its multiplier, until the
# violation is paid back; then the price falls again. The two players swing around the optimum.

# %%
plots.multipliers(data);

# %% [markdown]
# `data` is an `xarray.Dataset`: every number that was recorded, with its axes and units. The policy
# after the last episode, on the layers of the CMDP:

# %%
plots.policy(cmdp, data.policy.isel(seed=0));

# %% [markdown]
# Last, what the paper promises for this run. A guarantee holds, fails, is vacuous where nobody could
# exceed its bound, or does not apply, and then there is a reason.

# %%
for name in data.certificate.values:
    one = data.sel(certificate=name).isel(seed=0)
    print(f"{name}: {one.certificate_status.item()} {one.certificate_reason.item()}")
