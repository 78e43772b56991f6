r"""What a run will cost, before it starts: seconds and bytes, roughly.

A device that plays $w$ lanes of shape $(L, S, A)$ with PDGD-OPS takes for one episode of each

$$a + w \, (b \, L S^2 A + c \, L A S^3 + d \, (1 + m) L S A)$$

seconds on one core: for the operations themselves, however small; for work on occupancies; for the
matrices of the projection, where $c$ is larger once one of them has left the first cache; and to
draw rewards and constraints. A policy that is fixed has no matrices, and smaller constants. They
are fitted to two machines (`python benchmarks/scaling.py --fit` measures and prints them) and the
same everywhere: plans of sweeps are made with them, and must not depend on where they are made.
They are right within a factor of three for what was measured there, see `benchmarks/machines.py`; a
busy or older machine takes longer.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp

from pdgd_jax._internal.memory import free_memory
from pdgd_jax.learners import Learner
from pdgd_jax.models import CMDP
from pdgd_jax.simulation import Comparators, start

if TYPE_CHECKING:
    from pdgd_jax.sweeps._plan import Group, Plan

__all__ = [
    "FIXED",
    "NEWTON",
    "Constants",
    "Cost",
    "bytes_of",
    "compile_seconds",
    "constants_of",
    "cost_of_plan",
    "cost_of_run",
    "episode_seconds",
    "free_bytes",
    "lane_bytes",
    "variables_of",
]

Shape = tuple[int, int, int]


class Constants(NamedTuple):
    """Seconds, on one core.

    Attributes:
      step: for an episode, however many lanes and however small.
      triple: for each of $L S A S$ and lane.
      matrix: for each of $L A S^3$ and lane, while a matrix of the projection is in the cache.
      matrix_out: for each of them once it is not.
      draw: for each of $(1 + m) L S A$ and lane.
      compile: to compile the smallest program.
      compile_layer: more for each layer.
      compile_state: more for each state of a layer.
    """

    step: float
    triple: float
    matrix: float
    matrix_out: float
    draw: float
    compile: float
    compile_layer: float
    compile_state: float


# As `benchmarks/scaling.py --fit` prints them: closest, by the ratio, to two machines, one of
# which is up to four times as fast as the other (`benchmarks/machines.py`).
NEWTON = Constants(
    step=3.4e-05,
    triple=7.8e-08,
    matrix=5.9e-09,
    matrix_out=1.5e-08,
    draw=3.6e-08,
    compile=15.0,
    compile_layer=0.15,
    compile_state=0.098,
)
FIXED = Constants(
    step=1.7e-05,
    triple=1.1e-09,
    matrix=0.0,
    matrix_out=0.0,
    draw=1.3e-08,
    compile=4.9,
    compile_layer=0.0,
    compile_state=0.0,
)

# A matrix of the projection, [S, S], is in the first cache up to this size.
_CACHE_BYTES = 2**15
# What a process has beside its lanes: Python, JAX, and the compiler at work, which takes more the
# more states a layer has.
_PROCESS_BYTES = 3 * 2**28
_PROCESS_BYTES_OF_STATE = 10 * 2**20
# Arrays of the size of an occupancy that a projection holds at the same time, generously.
_PROJECTION_ARRAYS = 32

_FIXED_LEARNERS = ("uniform", "best-feasible", "most-feasible")


def constants_of(learner: str, solver: str) -> Constants | None:
    """What is known about a learner of this name; None if nothing is."""
    if learner in _FIXED_LEARNERS:
        return FIXED
    known = learner in ("pdgd-ops", "uc-o-gdps") and solver == "newton"
    return NEWTON if known else None


def episode_seconds(
    shape: Shape,
    lanes: int = 1,
    *,
    num_constraints: int = 1,
    itemsize: int = 8,
    constants: Constants = NEWTON,
) -> float:
    """How long a device takes for one episode of so many lanes together.

    Example:
      >>> one, many = episode_seconds((4, 4, 3)), episode_seconds((4, 4, 3), lanes=64) / 64
      >>> round(one * 1e6), round(many * 1e6)   # microseconds for one lane: alone, and among others
      (57, 23)
    """
    L, S, A = shape
    fits = S * S * itemsize <= _CACHE_BYTES
    lane = (
        constants.triple * L * S * A * S
        + (constants.matrix if fits else constants.matrix_out) * L * A * S**3
        + constants.draw * (1 + num_constraints) * L * S * A
    )
    return constants.step + lanes * lane


def compile_seconds(shape: Shape, constants: Constants = NEWTON) -> float:
    """How long the program takes to compile."""
    L, S, _ = shape
    return constants.compile + constants.compile_layer * L + constants.compile_state * S


def bytes_of(tree: Any) -> int:
    """What the arrays of a tree take, which may be mere shapes."""
    return sum(
        math.prod(leaf.shape) * (leaf.dtype.itemsize if hasattr(leaf.dtype, "itemsize") else 8)
        for leaf in jax.tree.leaves(tree)
    )


def lane_bytes(carry: int, data: int) -> int:
    """What a lane takes of its device: the carry goes in and out, and as much is on its way."""
    return 4 * carry + data


def variables_of(cmdp: CMDP) -> int:
    """The entries of an occupancy that exist: (x, a, x') in all layers."""
    states = jnp.asarray(cmdp.layers.state_mask)[1:].sum(-1)
    pairs = jnp.asarray(cmdp.layers.action_mask).sum((-2, -1))
    return int((states * pairs).sum())


class Cost(NamedTuple):
    """What something will cost.

    Attributes:
      variables: of one projection, the most.
      lanes: how many runs.
      devices: that play them.
      episodes: of all lanes together.
      memory: in bytes, of the whole process.
      compile_seconds: to compile; None if unknown.
      play_seconds: to play; None if unknown.
      reason: why it is not known.
    """

    variables: int
    lanes: int
    devices: int
    episodes: int
    memory: int
    compile_seconds: float | None
    play_seconds: float | None
    reason: str = ""

    @property
    def seconds(self) -> float | None:
        """In all; None if unknown."""
        if self.compile_seconds is None or self.play_seconds is None:
            return None
        return self.compile_seconds + self.play_seconds

    def facts(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return self._asdict() | {"seconds": self.seconds}


def cost_of_run(
    cmdp: CMDP,
    learner: Learner,
    num_episodes: int,
    seeds: int,
    *,
    name: str,
    solver: str,
    devices: int,
) -> Cost:
    """What a `run` for several seeds will cost, without compiling anything.

    Args:
      cmdp: what is played.
      learner: who plays.
      num_episodes: T.
      seeds: how many runs.
      name: of the learner.
      solver: of its projection.
      devices: how many there are.
    """
    used = min(devices, seeds)
    width = -(-seeds // used)
    shape, dtype = cmdp.layers.shape, cmdp.mdp.transition.dtype
    # The optimum and the most feasible occupancy, which linear programs are yet to find.
    found: Any = jax.ShapeDtypeStruct((2, *shape, shape[1]), dtype)
    comparators = Comparators(found, Comparators.default(cmdp).multipliers)
    what = (cmdp, learner.as_pytree(), comparators)
    carry = jax.eval_shape(lambda w: start(jax.random.key(0), *w), what)
    each = lane_bytes(bytes_of(carry), bytes_of(what))
    constants, reason = _known(name, solver)
    compiling = playing = None
    if constants is not None:
        once = episode_seconds(
            shape,
            width,
            num_constraints=cmdp.num_constraints,
            itemsize=dtype.itemsize,
            constants=constants,
        )
        compiling, playing = compile_seconds(shape, constants), num_episodes * once
    return Cost(
        variables=variables_of(cmdp),
        lanes=seeds,
        devices=used,
        episodes=num_episodes * seeds,
        memory=_memory(used, width, each, shape, dtype.itemsize, constants),
        compile_seconds=compiling,
        play_seconds=playing,
        reason=reason,
    )


def cost_of_plan(plan: "Plan", devices: int, processes: int = 1) -> Cost:
    """What a sweep will cost, from its beginning.

    Args:
      plan: what is played.
      devices: of each process.
      processes: how many share the work.
    """
    solver = plan.configuration.solver
    memory, variables, compiling, playing, reason = 0, 0, 0.0, 0.0, ""
    itemsize = jnp.result_type(float).itemsize
    for group in plan.groups:
        used = max(1, min(devices, -(-len(group.blocks) // processes)))
        L, S, A = group.shape
        variables = max(variables, L * S * A * S)
        each = group.bytes_per_lane
        constants, why = _known(group.learners[0], solver)
        reason = reason or why
        needed = _memory(used, group.width, each, group.shape, itemsize, constants)
        memory = max(memory, needed)
        if constants is not None:
            compiling += compile_seconds(group.shape, constants)
            playing += _group_seconds(group, used * processes, itemsize, constants)
    return Cost(
        variables=variables,
        lanes=plan.lanes,
        devices=devices * processes,
        episodes=plan.episodes,
        memory=memory,
        compile_seconds=None if reason else compiling,
        play_seconds=None if reason else playing,
        reason=reason,
    )


def _group_seconds(group: "Group", at_once: int, itemsize: int, constants: Constants) -> float:
    """Blocks are played in rounds, each as long as its longest."""
    once = episode_seconds(
        group.shape,
        group.width,
        num_constraints=group.num_constraints,
        itemsize=itemsize,
        constants=constants,
    )
    rounds = [group.blocks[i : i + at_once] for i in range(0, len(group.blocks), at_once)]
    return sum(max(block.horizon for block in blocks) * once for blocks in rounds)


def _known(learner: str, solver: str) -> tuple[Constants | None, str]:
    """The constants, or why there are none."""
    if (platform := jax.default_backend()) != "cpu":
        return None, f"not measured on a {platform}"
    constants = constants_of(learner, solver)
    if constants is not None:
        return constants, ""
    own = learner not in ("pdgd-ops", "uc-o-gdps")
    return None, f"not measured for {f'learner {learner!r}' if own else f'solver {solver!r}'}"


def _memory(
    devices: int,
    width: int,
    each: int,
    shape: Shape,
    itemsize: int,
    constants: Constants | None,
) -> int:
    L, S, A = shape
    # The data of all lanes are put together on the host first.
    lanes = 2 * devices * width * each
    if constants is FIXED:
        return _PROCESS_BYTES + lanes
    # On a CPU lanes are projected one after another, or some small ones together.
    together = 1 if jax.default_backend() == "cpu" else width
    projection = together * _PROJECTION_ARRAYS * L * S * A * S * itemsize
    return _PROCESS_BYTES + S * _PROCESS_BYTES_OF_STATE + lanes + devices * projection


def free_bytes() -> int | None:
    """The memory that is free where arrays live; None if nobody tells."""
    statistics = jax.local_devices()[0].memory_stats()
    if statistics and "bytes_limit" in statistics:
        return int(statistics["bytes_limit"] - statistics.get("bytes_in_use", 0))
    return free_memory()
