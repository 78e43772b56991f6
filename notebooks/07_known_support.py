# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # 7. Known support: how much faster does it learn?
#
# A learner may be told which cells can follow a cell, without their probabilities. It then holds the
# transitions that can happen alone, and its confidence radii shrink, since Weissman's inequality
# counts the successors of a pair instead of the states of a layer.

# %%
import json
import pathlib

import jax
import matplotlib.pyplot as plt

from pdgd_jax import make, make_learner, plots, run

jax.config.update("jax_enable_x64", True)
lakes = {
    support: make("gymnasium", env="FrozenLake-v1", horizon=10, budget=0.1, support=support)
    for support in ("known", "unknown")
}
{support: int(lake.layers.num_triples) for support, lake in lakes.items()}

# %% [markdown]
# ## Learning curves
#
# They were played before, since they take minutes to an hour: `notebooks/support/collect.py` says
# how. PDGD-OPS with a tenth of the paper's radii; lines are medians over seeds, bands go from 10%
# to 90%.

# %%
curves = json.loads(pathlib.Path("support/curves.json").read_text())
{name: (each["seeds"], each["episode"][-1], each["unconverged"]) for name, each in curves.items()}

# %%
figure, panels = plt.subplots(1, 2, figsize=(7, 2.6), layout="constrained")
for axes, quantity in zip(panels, ("regret", "violation"), strict=True):
    for name in ("lake_4x4_known", "lake_4x4_unknown"):
        low, median, high = curves[name][quantity]
        (line,) = axes.plot(curves[name]["episode"], median, label=name.replace("lake_4x4_", ""))
        axes.fill_between(curves[name]["episode"], low, high, color=line.get_color(), alpha=0.2)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(xlabel="episode", ylabel=quantity)
panels[0].legend(title="support")
# %% [markdown]
# On FrozenLake 4x4 over ten steps the regret with known support is half of that with unknown
# support. The violation rises for a thousand episodes and is gone after 9,000. With unknown support
# it hardly falls: an optimistic learner believes that it can step from any cell to any other, and
# never into a hole.
#
# Larger instances were played with known support alone: with unknown support an episode of FrozenLake
# 8x8 takes four times as long, and Taxi over ten steps has seven million variables. 2,000 episodes are
# few for the lake, whose learner still explores; Taxi is learnt in two hundred.

# %%
larger = [name for name in curves if not name.startswith("lake_4x4")]
figure, panels = plt.subplots(len(larger), 2, figsize=(7, 2.4 * len(larger)), layout="constrained")
for name, row in zip(larger, panels.reshape(-1, 2), strict=True):
    for axes, quantity in zip(row, ("regret", "violation"), strict=True):
        low, median, high = curves[name][quantity]
        axes.plot(curves[name]["episode"], median)
        axes.fill_between(curves[name]["episode"], low, high, alpha=0.2)
        axes.axhline(0, color="grey", linewidth=0.8)
        axes.set(xlabel="episode", ylabel=quantity, title=name.replace("_", " "))

# %% [markdown]
# ## The policies on the grid
#
# The small lake again, few enough episodes to be played here. Hatched cells have a positive expected
# cost: a step from there may slip into a hole. After 600 episodes both walk alike, but the learner
# with unknown support has paid twice for it.

# %%
T = 600


def play(lake):
    learner = make_learner("pdgd-ops", lake, T, confidence_scale=0.1)
    return run(jax.random.key(0), lake, learner, T, checkpoints=20)


figure, panels = plt.subplots(1, 2, figsize=(7, 3), layout="constrained")
for (support, lake), axes in zip(lakes.items(), panels, strict=True):
    history = play(lake)
    plots.grid(lake, history.policy, directions="ldru", ax=axes)
    axes.set_title(f"support {support}: violation {float(history.violation[-1, 0]):.1f}")
