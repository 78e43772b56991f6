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
# # 6. Benchmarks
#
# The functions of `benchmarks/`, called with small numbers, in this process and on one core. Numbers
# to quote come from the scripts themselves, which measure in turns and on all cores:
# `python benchmarks/projection.py`, `python benchmarks/episodes.py`, `python benchmarks/scaling.py`.

# %%
import sys

import jax
import matplotlib.pyplot as plt
import pandas as pd

sys.path.append("../benchmarks")
import projection
import scaling

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## Solvers compared
#
# First the projections of a learning run are recorded, 16 lanes of 40 episodes. Then each solver
# replays them: ours for one lane and for all, OSQP warm-started and factorised once per epoch, as one
# would use it in a loop, and Clarabel.

# %%
case = projection.CASES["small"]._replace(before=200, episodes=40)
sequence = projection.record(case, num_lanes=16)
contestants = {
    "newton 1e-9, 1 lane": projection.Ours(case, sequence, lanes=1, core=0),
    "newton 1e-9, 16 lanes": projection.Ours(case, sequence, lanes=16, core=0),
    "OSQP, warm, 1e-6": projection.Osqp(case, sequence, core=0, episodes=20),
    "Clarabel, 1e-11": projection.Clarabel(case, sequence, core=0, episodes=10),
}
measured = {name: solver.measure() for name, solver in contestants.items()}
table = pd.DataFrame(measured.values(), index=measured.keys())
table.round({"microseconds": 1, "iterations": 1, "slowest": 1, "compile_seconds": 1})

# %%
figure, axes = plt.subplots(figsize=(5, 2), layout="constrained")
axes.barh(table.index, table.microseconds, color="#0072B2")
axes.set(xscale="log", xlabel="microseconds per projection")
axes.invert_yaxis()

# %% [markdown]
# ## Throughput against lanes, compile time apart
#
# Whole episodes now, of PDGD-OPS on a small instance. More lanes cost little until the core is busy.
# Compilation takes seconds and does not depend on how long one runs; it is paid once for a shape.
# `python benchmarks/scaling.py` goes on to 4,096 lanes, two devices, and larger instances.

# %%
small = {"sizes": [1, 3, 3, 1], "num_actions": 2}
cases = {lanes: scaling.Case(lanes=lanes, **small) for lanes in (1, 8, 64)}
throughput = pd.DataFrame(
    {
        "episodes_per_second": [case.measure() for case in cases.values()],
        "compile_seconds": [case.compile_seconds for case in cases.values()],
    },
    index=pd.Index(cases.keys(), name="lanes"),
)
throughput.round({"episodes_per_second": 0, "compile_seconds": 1})

# %%
figure, axes = plt.subplots(figsize=(5, 2.5), layout="constrained")
axes.plot(throughput.index, throughput.episodes_per_second, "o-", color="#0072B2")
axes.set(xscale="log", yscale="log", xlabel="lanes", ylabel="episodes/s")
axes.set_xticks(throughput.index, throughput.index)
axes.minorticks_off()
