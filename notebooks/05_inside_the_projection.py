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
# # 5. Inside the projection
#
# Every episode projects a point on the occupancies of a confidence set. Here is the geometry, and
# why a few Newton steps are enough. The mathematics is in `docs/projection.md`.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from pdgd_jax import ConfidenceSet, make, occupancy_of, project
from pdgd_jax.projection import project_cone

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## One cone
#
# For one state and action, with three states to go to: the transition $p$ is estimated, and the true
# one is within $\epsilon$ of it in the 1-norm. At mass 1 this is a hexagon in the triangle of all
# distributions; for all masses it is a cone. We project points of the triangle on it.

# %%
p, epsilon = np.array([0.5, 0.3, 0.2]), 0.3
corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
weights = np.random.default_rng(0).dirichlet(np.ones(3), 4000)
center = jnp.repeat(p[:, None], 4000, axis=1)
pieces = project_cone(jnp.asarray(weights.T), center, jnp.full(4000, epsilon / 2), jnp.ones(4000))
inside = np.abs(weights - p).sum(-1) <= epsilon
moved = np.asarray(pieces.value / pieces.value.sum(0)).T
bool(np.allclose(moved[inside], weights[inside]))

# %% [markdown]
# Points inside stay. Outside, colours show which *piece* a point belongs to: which entries are
# lowered (U), raised (D), set to zero, or kept at exactly their share. On a piece the projection is
# linear. Black dots are the projections.

# %%
kinds = np.sign(np.round(np.asarray(pieces.block).T, 6)) @ np.array([1, 3, 9])
kinds = np.unique(kinds, return_inverse=True)[1]
figure, axes = plt.subplots(figsize=(4, 3.5), layout="constrained")
axes.scatter(*(weights @ corners).T, c=kinds, cmap="tab20", s=4)
axes.scatter(*(moved[~inside] @ corners).T, c="black", s=1)
axes.set_axis_off()
axes.set_aspect("equal")

# %% [markdown]
# ## All cones and the flow
#
# Cones of adjacent layers meet in their states, where flow is conserved. One potential for each state
# enforces that, and semismooth Newton finds the potentials: fix the pieces, solve a linear system,
# look at the pieces again. Here it is stopped at looser and looser tolerances, in one call.

# %%
mdp = make("random").mdp
shape = mdp.layers.shape
q = occupancy_of(mdp, mdp.layers.uniform_policy())
loss = jax.random.uniform(jax.random.key(0), shape)
confidence = ConfidenceSet(mdp.transition, jnp.full(shape, 0.3))


@jax.jit
@jax.vmap
def solve(step, tolerance):
    target = q - step * loss[..., None]
    return project(mdp.layers, target, confidence, tolerance=tolerance).info


tolerances = jnp.tile(jnp.geomspace(1.0, 1e-10, 21), 3)
steps = jnp.repeat(jnp.array([0.01, 0.1, 1.0]), 21)
info = solve(steps, tolerances)

# %%
figure, axes = plt.subplots(figsize=(4, 2.6), layout="constrained")
for step in (0.01, 0.1, 1.0):
    of = np.asarray(steps) == step
    axes.semilogy(
        info.iterations[of], np.maximum(info.residual[of], 1e-17), "o-", label=f"{step:g}"
    )
axes.set(xlabel="Newton steps", ylabel="residual")
figure.legend(title="length of the step", loc="outside right upper");

# %% [markdown]
# The residual does not creep towards zero: it falls off a cliff once the pieces are right, since the
# system is then linear. Longer gradient steps change more pieces, and take more Newton steps.
#
# ## A batch
#
# Under `vmap` all lanes are solved together until the slowest is done. So the tail of this histogram
# is what a batch costs. Cold starts here; in a run each lane begins at its last solution, and takes
# one to three.

# %%
lengths = jnp.geomspace(1e-3, 1.0, 63)
info = solve(lengths, jnp.full(63, 1e-9))
figure, axes = plt.subplots(figsize=(4, 2.2), layout="constrained")
axes.hist(np.asarray(info.iterations), bins=np.arange(0.5, int(info.iterations.max()) + 1.5))
axes.set(xlabel="Newton steps", ylabel="lanes")
print(bool(info.converged.all()), float(info.residual.max()))
