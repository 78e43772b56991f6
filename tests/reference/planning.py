"""Slow, plain twins of `pdgd_jax.planning`, written from the definitions alone.

Plans over a set of transitions are linear programs over occupancies of triples, z >= 0: flow is
conserved, and z(x, a, .) lies in the cone of its pair. HiGHS solves them. A set is a `Ball`, with
one more variable for each triple, or a `Box`; known transitions are a box whose bounds are equal.
Everything is dense, `[L, S, A, S]`, over the triples that a mask names.
"""

from typing import NamedTuple

import numpy as np
import scipy.optimize
import scipy.sparse


class Ball(NamedTuple):
    """Transitions within an L1 radius, [L, S, A], of a center, [L, S, A, S]."""

    center: np.ndarray
    radius: np.ndarray


class Box(NamedTuple):
    """Transitions between two bounds, [L, S, A, S]."""

    lower: np.ndarray
    upper: np.ndarray


class Program:
    """The occupancies of a set: `equal @ v == right`, `most @ v <= 0`, v >= 0.

    The first variables are the triples, in the order of `np.argwhere(triples)`.

    Args:
        triples: [L, S, A, S], which can happen.
        allowed: the set.
        policy: [L, S, A] if the policy is given; all policies by default.
    """

    def __init__(self, triples, allowed, policy=None):
        self.triples = triples
        self.where = np.argwhere(triples)
        self.count = len(self.where)
        rows, columns, numbers = [], [], []
        self.num_most = 0
        self.size = self.count * (2 if isinstance(allowed, Ball) else 1)

        def inequality(terms):
            for column, number in terms:
                rows.append(self.num_most)
                columns.append(column)
                numbers.append(number)
            self.num_most += 1

        of_pair = {}
        for index, (k, x, a, _) in enumerate(self.where):
            of_pair.setdefault((k, x, a), []).append(index)
        for (k, x, a), own in of_pair.items():
            for index in own:
                y = self.where[index][3]
                if isinstance(allowed, Box):
                    low, high = allowed.lower[k, x, a, y], allowed.upper[k, x, a, y]
                    inequality([*((i, low) for i in own), (index, -1)])
                    inequality([*((i, -high) for i in own), (index, 1)])
                else:
                    for sign in (1, -1):
                        share = -sign * allowed.center[k, x, a, y]
                        away = (index, sign), (self.count + index, -1)
                        inequality([*((i, share) for i in own), *away])
            if isinstance(allowed, Ball):
                inequality(
                    [
                        *((self.count + i, 1) for i in own),
                        *((i, -allowed.radius[k, x, a]) for i in own),
                    ]
                )
        self.most = scipy.sparse.csr_matrix(
            (numbers, (rows, columns)), shape=(self.num_most, self.size)
        )
        self._conserve(policy)

    def _conserve(self, policy):
        states = np.argwhere(self.triples.any((2, 3)))
        number = {tuple(state): i for i, state in enumerate(states)}
        rows, columns, numbers = [], [], []
        right = np.zeros(len(states))
        right[number[0, 0]] = 1
        for index, (k, x, _, y) in enumerate(self.where):
            rows.append(number[k, x])
            columns.append(index)
            numbers.append(1)
            if (k + 1, y) in number:
                rows.append(number[k + 1, y])
                columns.append(index)
                numbers.append(-1)
        equal = scipy.sparse.csr_matrix((numbers, (rows, columns)), shape=(len(states), self.size))
        if policy is not None:  # z(x, a) = pi(a|x) z(x)
            played = scipy.sparse.lil_matrix((self.count, self.size))
            for index, (k, x, a, _) in enumerate(self.where):
                for other in np.flatnonzero((self.where[:, :2] == (k, x)).all(1)):
                    same = self.where[other][2] == a
                    played[index, other] = same - policy[k, x, a]
            equal = scipy.sparse.vstack([equal, played.tocsr()])
            right = np.concatenate([right, np.zeros(self.count)])
        self.equal, self.right = equal.tocsr(), right

    def of_pairs(self, values):
        """A linear function of the pairs, [L, S, A], as one of the variables."""
        row = np.zeros(self.size)
        row[: self.count] = values[tuple(self.where[:, :3].T)]
        return row

    def of_state(self, layer, state):
        """The mass of a state, as a linear function of the variables."""
        row = np.zeros(self.size)
        row[: self.count] = (self.where[:, :2] == (layer, state)).all(1)
        return row

    def solve(self, objective, costs=()):
        """Maximise, with `costs @ v <= 0`; None if that cannot be."""
        above = scipy.sparse.vstack([self.most, *map(scipy.sparse.csr_matrix, costs)])
        found = self._linprog(-objective, above, self.equal)
        return None if found is None else -found.fun

    def least_violation(self, costs):
        """min over occupancies of max_i costs_i @ v."""
        above = scipy.sparse.vstack([self.most, *map(scipy.sparse.csr_matrix, costs)])
        worst = np.r_[np.zeros(self.num_most), -np.ones(len(costs))]
        above = scipy.sparse.hstack([above, worst[:, None]])
        equal = scipy.sparse.hstack([self.equal, np.zeros((len(self.right), 1))])
        objective = np.r_[np.zeros(self.size), 1]
        return self._linprog(objective, above, equal, free=1).fun

    def _linprog(self, objective, above, equal, free=0):
        bounds = [(0, None)] * (len(objective) - free) + [(None, None)] * free
        found = scipy.optimize.linprog(
            objective,
            A_ub=above,
            b_ub=np.zeros(above.shape[0]),
            A_eq=equal,
            b_eq=self.right,
            bounds=bounds,
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if found.status == 2:
            return None
        assert found.status == 0, found.message
        return found
