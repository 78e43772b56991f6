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
# to quote come from the scripts themselves, which measure solvers in turns, on all cores:
# `python benchmarks/projection.py` and `python benchmarks/episodes.py`.

# %%
import sys

import jax
import matplotlib.pyplot as plt
import pandas as pd

sys.path.append("../benchmarks")
import projection

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
# More lanes cost little until the core is busy. Compilation takes seconds and does not depend on how
# long one runs; it is paid once for a shape.

# %%
ours = table[table.compile_seconds > 0]
for name, row in ours.iterrows():
    print(
        f"{name}: {1e6 / row.microseconds:,.0f} projections/s after {row.compile_seconds:.1f} s "
        "of compilation"
    )
