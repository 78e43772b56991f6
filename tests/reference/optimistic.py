"""Slow, plain twins of the optimistic learners with bandit feedback, from the specification alone.

Efroni, Mannor and Pirotta (2020). Losses c = 1 - r and d = (1 + G) / 2, thresholds L / 2. HiGHS
solves OptCMDP's linear program, and loops do the rest.
"""

import math

import numpy as np

from tests.reference.planning import Box, Program


class Optimist:
    """What all of them estimate.

    Args:
        triples: [L, S, A, S], which can happen.
        num_constraints: m.
        num_episodes: K.
        delta: the confidence parameter.
        scale: a factor of all radii.
    """

    def __init__(self, triples, num_constraints, num_episodes, delta, scale):
        self.triples, self.m, self.scale = triples, num_constraints, scale
        self.pairs = triples.any(-1)
        self.L, self.S, self.A = self.pairs.shape
        states = self.pairs.any(-1).sum() + 1  # and the last one
        self.base = 6 * states * self.pairs.sum(-1).max() * num_episodes / delta
        self.visits = np.zeros(self.pairs.shape)
        self.steps = np.zeros(triples.shape)
        self.sums = np.zeros((1 + num_constraints, *self.pairs.shape))

    def see(self, states, actions, rewards, costs):
        """Count an episode, looking at its own pairs alone."""
        for k in range(self.L):
            here = k, states[k], actions[k]
            self.visits[here] += 1
            self.steps[(*here, states[k + 1])] += 1
            self.sums[(0, *here)] += 1 - rewards[here]
            for i in range(self.m):
                self.sums[(1 + i, *here)] += (1 + costs[(i, *here)]) / 2

    def transition(self):
        following = np.maximum(self.triples.sum(-1, keepdims=True), 1)
        estimate = self.steps / np.maximum(1, self.visits)[..., None]
        return np.where(self.visits[..., None] > 0, estimate, self.triples / following)

    def around(self):
        P, n, log = self.transition(), np.maximum(1, self.visits)[..., None], math.log(self.base)
        return self.scale * (2 * np.sqrt(P * (1 - P) * log / n) + 14 * log / (3 * n))

    def means(self):
        return self.sums / np.maximum(1, self.visits)

    def of_losses(self):
        log = math.log(self.base * (1 + self.m))
        return self.scale * np.sqrt(2 * log / np.maximum(1, self.visits)) * self.pairs

    def bonus(self):
        return self.of_losses() + self.L * (self.around() * self.triples).sum(-1)

    def box(self):
        P, radius = self.transition(), self.around()
        radius = np.where(self.visits[..., None] > 0, radius, 1)
        return Box(
            *(x * self.triples for x in (np.maximum(P - radius, 0), np.minimum(P + radius, 1)))
        )


class OptCmdp(Optimist):
    """Only its value is determined: an optimum need not be unique."""

    bonuses = False

    def value(self):
        """The optimistic loss; None if nothing is feasible."""
        P = self.transition() * self.triples
        allowed = Box(P, P) if self.bonuses else self.box()
        losses = self.means() - (self.bonus() if self.bonuses else self.of_losses())
        program = Program(self.triples, allowed)
        costs = [program.of_pairs(loss - 0.5) for loss in losses[1:]]
        best = program.solve(program.of_pairs(-losses[0]), costs)
        return None if best is None else -best


class OptCmdpBonus(OptCmdp):
    bonuses = True


class OptDual(Optimist):
    """The first action of those that are equally good."""

    def __init__(self, *arguments, dual_step):
        super().__init__(*arguments)
        self.dual_step, self.multipliers = dual_step, np.zeros(self.m)

    def plan(self):
        """The policy [L, S], its value, and how much it exceeds the thresholds."""
        losses, box = self.means() - self.of_losses(), self.box()
        priced = losses[0] + np.tensordot(self.multipliers, losses[1:], 1)
        values = np.zeros((self.L + 1, self.S))
        chosen, ways = np.zeros((self.L, self.S), int), {}
        for k in reversed(range(self.L)):
            for x in range(self.S):
                best = np.inf
                for a in np.flatnonzero(self.pairs[k, x]):
                    here = k, x, a
                    way, left = box.lower[here].copy(), 1 - box.lower[here].sum()
                    for y in sorted(
                        np.flatnonzero(self.triples[here]), key=lambda y: values[k + 1, y]
                    ):
                        more = min(left, box.upper[here][y] - box.lower[here][y])
                        way[y] += more
                        left -= more
                    total = priced[here] + way @ values[k + 1]
                    if total < best - 1e-12:
                        best, chosen[k, x], ways[k, x] = total, a, way
                values[k, x] = best if np.isfinite(best) else 0
        mass, spent = np.eye(self.S)[0], np.zeros(self.m)
        for k in range(self.L):
            after = np.zeros(self.S)
            for x in np.flatnonzero(mass):
                spent += mass[x] * losses[1:, k, x, chosen[k, x]]
                after += mass[x] * ways[k, x]
            mass = after
        return chosen, values[0, 0], spent - self.L / 2

    def dual(self, excess):
        self.multipliers = np.maximum(0, self.multipliers + self.dual_step * excess)


class OptPrimalDual(Optimist):
    def __init__(self, *arguments, step, dual_step, ceiling):
        super().__init__(*arguments)
        self.step, self.dual_step, self.ceiling = step, dual_step, ceiling
        self.multipliers = np.zeros(self.m)
        self.policy = self.pairs / np.maximum(1, self.pairs.sum(-1, keepdims=True))

    def improve(self):
        """The steps of the policy and the multipliers, from estimates before the episode."""
        P, bonus, tables, values = self.transition(), self.bonus(), [], []
        for loss in self.means():
            value, table = np.zeros(self.S), np.zeros(self.pairs.shape)
            for k in reversed(range(self.L)):
                for x, a in np.argwhere(self.pairs[k]):
                    here = k, x, a
                    table[here] = max(0, loss[here] - bonus[here] + P[here] @ value)
                value = (self.policy[k] * table[k]).sum(-1)
            tables.append(table)
            values.append(value[0])
        priced = tables[0] + sum(w * t for w, t in zip(self.multipliers, tables[1:], strict=True))
        weights = self.policy * np.exp(-self.step * priced)
        total = weights.sum(-1, keepdims=True)
        self.policy = weights / np.where(total > 0, total, 1)
        moved = self.multipliers + self.dual_step * (np.array(values[1:]) - self.L / 2)
        self.multipliers = np.clip(moved, 0, self.ceiling)
