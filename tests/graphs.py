"""Random graphs of named kinds: which states can follow each pair of a loop-free MDP."""

import functools
import itertools

import jax
import numpy as np

from pdgd_jax import Layers

# The states of each layer and the number of actions.
SHAPES = {
    "chain": ((1, 2, 3, 4, 5, 1), 2),
    "bottleneck": ((1, 5, 1, 4, 1), 3),
    "one successor": ((1, 4, 5, 4, 1), 2),
    "unreachable": ((1, 4, 5, 4, 1), 2),
    "all": ((1, 4, 5, 4, 1), 2),
    "random": ((1, 4, 5, 4, 1), 3),
    "tree": ((1, 3, 6, 9, 1), 2),
    "grid": ((1, 9, 9, 9, 1), 4),
    "one to all": ((1, 8, 8, 1), 2),
    "unequal": ((1, 9, 9, 1), 2),
}
# The graphs of a family get the same padded sizes, so that one program plays them.
FAMILIES = (tuple(SHAPES)[:6], tuple(SHAPES)[6:])


def draw_graph(rng, kind):
    """Random successor lists `[X_k, A, X_{k+1}]` of each decision layer."""
    sizes, num_actions = SHAPES[kind]
    walls = rng.random(9) < 0.2
    lists = []
    for layer, (size, following) in enumerate(itertools.pairwise(sizes)):
        rows = np.full((size, num_actions, following), -1)
        parents = _partition(rng, following, size)
        wide = tuple(rng.integers((size, num_actions)))
        for x, a in np.ndindex(size, num_actions):
            least = 1
            among = np.arange(following)
            if kind == "chain" and following > 1:
                among = among[(among >= x - 1) & (among <= x + 1)]
            elif kind == "tree" and following > 1:
                among = among[parents == x]
            elif kind == "grid" and following > 1:
                among = _neighbours(rng, 0 if layer == 0 else x, a, walls)
                least = len(among)
            elif kind == "unreachable":
                among = among[: max(1, following - 2)]
            elif kind == "one successor" or (kind == "one to all" and (x, a) != wide):
                among = rng.choice(among, 1)
            elif kind == "unequal" and (x, a) != wide:
                among = rng.permutation(among)[: 1 + (x + a) % 2]
            elif kind in ("all", "one to all", "unequal"):
                least = following
            elif kind == "random" and a > 0 and rng.random() < 0.3:
                continue  # not an action of this state
            count = rng.integers(min(least, len(among)), len(among) + 1)
            rows[x, a, :count] = rng.permutation(among)[:count]
        lists.append(rows)
    return lists


def _partition(rng, number, parts):
    """Which part each of some numbers belongs to; none is empty if there are enough."""
    return rng.permutation(np.r_[np.arange(parts), rng.integers(parts, size=number)][:number])


def _neighbours(rng, cell, action, walls):
    """Where a step leads on a 3 x 3 grid: ahead or, on ice, also to both sides."""
    moves = np.array([(0, 1), (1, 0), (0, -1), (-1, 0)])
    slips = [action, action - 1, (action + 1) % 4] if rng.random() < 0.5 else [action]
    ends = np.array(divmod(cell, 3)) + moves[slips]
    inside = ((ends >= 0) & (ends < 3)).all(-1)
    found = np.where(inside, ends @ [3, 1], cell)
    return np.unique(np.where(walls[found], cell, found))


@functools.cache
def draw_family(kinds, count, seed):
    """The layers of some random graphs of each kind, stacked; all have the same padded sizes."""
    rng = np.random.default_rng(seed)
    graphs = {
        kind: [Layers.from_successors(SHAPES[kind][0], draw_graph(rng, kind)) for _ in range(count)]
        for kind in kinds
    }
    every = [graph for some in graphs.values() for graph in some]
    shape = tuple(int(n) for n in np.max([graph.shape for graph in every], 0))
    padded = {kind: [graph.pad_to(shape, every) for graph in some] for kind, some in graphs.items()}
    return {
        kind: jax.tree.map(lambda *leaves: np.stack(leaves), *some) for kind, some in padded.items()
    }
