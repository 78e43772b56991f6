"""Random problems of planning, dense and with successor lists, masked and padded."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax import BoxSet, ConfidenceSet, KnownTransitions, Layers
from tests.graphs import draw_family
from tests.reference.planning import Ball, Box

KINDS = ("ball", "box", "known")


class Drawn(NamedTuple):
    """A problem: the package's own arguments, and what the references take.

    Attributes:
      layers: of either layout.
      confidence: the set in that layout.
      reward: [L, S, A].
      costs: [m, L, S, A].
      policy: [L, S, A].
      triples: [L, S, A, S], which can happen.
      allowed: the set, dense.
      member: [L, S, A, S], some transitions in the set.
    """

    layers: Layers
    confidence: ConfidenceSet | BoxSet | KnownTransitions
    reward: np.ndarray
    costs: np.ndarray
    policy: np.ndarray
    triples: np.ndarray
    allowed: Ball | Box
    member: np.ndarray


def draw_layers(rng, largest, num_actions, lists):
    """Layers of random sizes, some without some actions, padded to the largest."""
    if lists:
        family, index = draw_family(("random", "unequal"), 8, 5), rng.integers(8)
        graphs = family[str(rng.choice(list(family)))]
        return jax.tree.map(lambda leaf: jnp.asarray(leaf[index]), graphs)
    depth = rng.integers(1, len(largest))
    sizes = (1, *(int(rng.integers(1, n + 1)) for n in largest[1:depth]), 1)
    dense = Layers.from_sizes(sizes, num_actions)
    actions = np.asarray(dense.action_mask) & (rng.random(dense.shape) < 0.8)
    actions[..., 0] |= np.asarray(dense.decision_mask)
    shape = len(largest) - 1, max(largest), num_actions
    return Layers(dense.state_mask, actions).pad_to(shape)


def rows(rng, triples, sparse=0.3):
    """Random distributions over the triples that can happen, some entries of them zero."""
    weights = rng.exponential(size=triples.shape) * (rng.random(triples.shape) > sparse) * triples
    weights = np.where(weights.sum(-1, keepdims=True) > 0, weights, triples)
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total > 0, total, 1)


def draw(
    rng,
    kind,
    m,
    *,
    largest=(1, 3, 3, 1),
    num_actions=2,
    lists=False,
    coarse=False,
    shift=(-0.5, 0.2),
):
    """One problem; `coarse` numbers are from a few values, so that there are many ties."""
    layers = draw_layers(rng, largest, num_actions, lists)
    triples = np.asarray(layers.to_dense(layers.triple_mask))
    pairs = np.asarray(layers.action_mask)
    center, other = rows(rng, triples), rows(rng, triples)
    if coarse:
        center = np.where(rng.random((*pairs.shape, 1)) < 0.5, np.round(center), center)
        center = np.where(center.sum(-1, keepdims=True) == 1, center, rows(rng, triples))
    share = rng.choice([0.0, 0.1, 0.3, 1.0], (*pairs.shape, 1))
    member = center + share * (other - center)
    distance = np.abs(member - center).sum(-1)
    if kind == "ball":
        radius = (distance + rng.choice([0.0, 0.2], pairs.shape)) * pairs
        allowed = Ball(center, radius)
        confidence = ConfidenceSet(layers.from_dense(jnp.asarray(center)), radius)
    elif kind == "box":
        low, high = np.minimum(center, member), np.maximum(center, member)
        high = np.minimum(1, high + rng.choice([0.0, 0.2], triples.shape)) * triples
        allowed = Box(low, high)
        confidence = BoxSet(*(layers.from_dense(jnp.asarray(x)) for x in (low, high)))
    else:
        allowed, member = Box(center, center), center
        confidence = KnownTransitions(layers.from_dense(jnp.asarray(center)))
    reward = rng.uniform(0, 1, pairs.shape)
    costs = rng.uniform(-0.7, 0.7, (m, *pairs.shape)) + rng.uniform(*shift)
    if coarse:
        reward, costs = np.round(2 * reward) / 2, np.round(costs)
    weights = rng.uniform(0.1, 1, pairs.shape) * pairs
    policy = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-9)
    return Drawn(layers, confidence, reward, costs, policy, triples, allowed, member)


def stacked(problems):
    """The problems as lanes."""
    given = [(p.layers, p.confidence, p.reward, p.costs, p.policy) for p in problems]
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *given)


def dense_occupancy(policy, transition):
    """[L, S, A, S], step by step."""
    mass = np.zeros(policy.shape[1])
    mass[0], flows = 1, []
    for chosen, following in zip(policy, transition, strict=True):
        flows.append(mass[:, None, None] * chosen[..., None] * following)
        mass = flows[-1].sum((0, 1))
    return np.stack(flows)


def excess(problem, occupancy):
    """By how much an occupancy, [L, S, A, S], leaves those of the set."""
    conserved = problem.triples.any((2, 3))
    inflow = np.zeros(conserved.shape)
    inflow[0, 0] = 1
    inflow[1:] = occupancy.sum((1, 2))[:-1]
    found = [-occupancy.min(), np.abs(occupancy[~problem.triples]).max(initial=0)]
    found.append((np.abs(occupancy.sum((2, 3)) - inflow) * conserved).max())
    mass = occupancy.sum(-1, keepdims=True)
    if isinstance(problem.allowed, Ball):
        away = np.abs(occupancy - mass * problem.allowed.center).sum(-1)
        found.append((away - problem.allowed.radius * mass[..., 0]).max())
    else:
        found.append((mass * problem.allowed.lower - occupancy).max())
        found.append((occupancy - mass * problem.allowed.upper).max())
    return max(found)
