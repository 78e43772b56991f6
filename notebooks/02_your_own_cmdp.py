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
# # 2. Your own CMDP
#
# A CMDP is a loop-free MDP and two processes: where rewards come from, and where constraints come
# from. We write one from a table of transitions, import one from Gymnasium, and write an adversary.

# %%
import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax import CMDP, evaluate, make, oracle, pdgd_ops, plots, policy_of, run, unroll
from pdgd_jax.processes import AdversarialProcess, Bernoulli, pytree

jax.config.update("jax_enable_x64", True)

# %% [markdown]
# ## From a table
#
# A machine is new, worn or broken; each day we run it or repair it. `unroll` turns transitions
# `[states, actions, next states]` into layers, and leaves out states that cannot be reached yet.

# %%
P = np.zeros((3, 2, 3))
P[:, 0] = [[0.6, 0.4, 0.0], [0.0, 0.5, 0.5], [0.0, 0.0, 1.0]]  # run it
P[:, 1] = [1.0, 0.0, 0.0]  # repair it
mdp = unroll(P, start=0, horizon=6)
mdp.layers.sizes

# %% [markdown]
# Rewards lie in [0, 1]. A constraint has values in [-1, 1] and asks for a sum of at most 0 over an
# episode: costs minus each step's share of the budget, here half a repair in six days.

# %%
output = mdp.from_flat(np.array([[1.0, 0.0], [0.6, 0.0], [0.0, 0.0]]))
repair = mdp.from_flat(np.array([[0.0, 1.0]] * 3))
limit = Bernoulli(repair[None] - 0.5 / 6)
machine = CMDP(mdp, Bernoulli(output), limit)
best = oracle.optimum(mdp, machine.rewards.mean(), machine.constraints.mean())
free = oracle.optimum(mdp, machine.rewards.mean())
margin = oracle.slater_margin(mdp, machine.constraints)
print(f"OPT {best.value:.3f}, without the limit {free.value:.3f}, price {best.multipliers[0]:.3f}")
print(f"rho {margin.rho:.3f}")

# %% [markdown]
# The budget binds: its price, the multiplier, is positive. The best policy repairs what is broken as
# long as that can pay, and where the budget ends, it tosses a coin:

# %%
plots.policy(machine, policy_of(jnp.asarray(best.occupancy), machine.layers));

# %% [markdown]
# ## From Gymnasium
#
# Any toy-text environment has a table already. A mishap is a hole of the frozen lake, and we allow
# one in a hundred episodes. So much care costs two goals of three.

# %%
lake = make("gymnasium", env="FrozenLake-v1", horizon=16, budget=0.01)
careful = oracle.optimum(lake.mdp, lake.rewards.mean(), lake.constraints.mean())
reckless = oracle.optimum(lake.mdp, lake.rewards.mean())
print(f"goal reached in {careful.value:.1%} of episodes, without the limit in {reckless.value:.1%}")
plots.grid(lake, policy_of(jnp.asarray(careful.occupancy), lake.layers), directions="ldru");

# %% [markdown]
# ## An adversary
#
# A process draws the values of each episode; it may keep a state and look at the policy that the
# learner is about to play. This one pays a machine less, the likelier it is to be run when new.


# %%
@pytree
class Spiteful(AdversarialProcess):
    """Pays half for what the policy does in the first layer."""

    values: jax.Array

    def draw(self, key, state, episode, policy):
        first = self.values.at[0].multiply(1 - 0.5 * policy[0])
        return first, state


spiteful = CMDP(mdp, Spiteful(output), limit)
T = 2000
learner = pdgd_ops(spiteful.layers, 1, T, confidence_scale=0.1)
keys = jax.random.split(jax.random.key(0), 4)
history = jax.vmap(lambda key: run(key, spiteful, learner, T, checkpoints=100))(keys)
result = evaluate(history, spiteful)
plots.violation(result);

# %% [markdown]
# What the four runs ended with, in each episode on average:

# %%
for name in ("regret", "violation"):
    print(name, np.round(getattr(result, name)[:, -1] / T, 4))

# %% [markdown]
# `register("machine", builder)` gives an instance a name for `make`, configurations and the command
# line; the README's section "Extending" shows this for processes, learners and solvers.
