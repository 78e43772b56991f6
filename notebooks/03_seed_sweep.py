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
# # 3. Seeds, instances and step sizes at once
#
# A run is a function of its key, and a learner a pytree whose numbers are leaves. So a sweep is a
# `vmap`: one program, compiled once, whatever is swept.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from pdgd_jax import make, pdgd_ops, plots, run, stack, sweep

jax.config.update("jax_enable_x64", True)
T = 1000

# %% [markdown]
# ## By hand
#
# Three instances, five dual step sizes, four seeds: 60 runs. The learner is made inside, from
# whatever the lane brings.

# %%
instances = stack([make("random", sizes=(1, 3, 1), num_actions=2, seed=seed) for seed in range(3)])
etas = jnp.geomspace(1e-3, 1e-1, 5)
keys = jax.random.split(jax.random.key(0), 4)


def violation(cmdp, eta, key):
    learner = pdgd_ops(cmdp.layers, 1, T, rates=(1.7, eta), confidence_scale=0.1)
    return run(key, cmdp, learner, T, checkpoints=20).violation[-1, 0]


over_keys = jax.vmap(violation, (None, None, 0))
over_etas = jax.vmap(over_keys, (None, 0, None))
everything = jax.jit(jax.vmap(over_etas, (0, None, None)))
found = everything(instances, etas, keys)
found.shape

# %%
figure, axes = plt.subplots(figsize=(4, 2.5), layout="constrained")
for number, lines in enumerate(np.median(found, axis=-1)):
    axes.semilogx(etas, lines / T, "o-", label=f"instance {number}")
axes.axhline(0, color="grey", linewidth=0.8)
axes.set(xlabel="dual step size", ylabel="violation per episode")
axes.legend();

# %% [markdown]
# A step too small never raises the price of the constraint within 1,000 episodes.
#
# ## With `sweep`
#
# The same for results that you keep: `sweep` crosses everything, uses all devices, and returns a
# Dataset with an axis for each setting. With `out=` it saves as it goes, and goes on from there when
# it is called again. On the command line it is `pdgd sweep`.

# %%
data = sweep(
    {
        "seeds": 4,
        "checkpoints": 50,
        "instance": [
            {"make": "random", "sizes": [1, 3, 1], "num_actions": 2, "seed": 5},
            {"make": "no-slater", "sizes": [1, 3, 1], "num_actions": 2},
        ],
        "settings": {"horizon": [T, 3 * T], "confidence_scale": [1.0, 0.1]},
    }
)
data

# %%
plots.violation(data.sel(horizon=3 * T));

# %% [markdown]
# ## On a GPU
#
# Nothing changes but the installation: `pip install 'jax[cuda12]'`. An episode is a chain of small
# kernels, so that a GPU needs thousands of lanes to be worth it: use hundreds of seeds, or many
# settings. Consumer cards are slow in float64; leave it off, and the projection aims at 1e-5 instead
# of 1e-9. On a CPU, `sweep` from the command line uses every core; in a notebook that takes
# `jax.config.update("jax_num_cpu_devices", n)` before anything else.
