r"""A rough estimate of the cost of a run before it starts, in seconds and bytes.

A device that plays $w$ lanes of shape $(L, S, A)$ with PDGD-OPS needs for one episode of each lane

$$a + w \, (b \, L S^2 A + c \, L A S^3 + d \, (1 + m) L S A)$$

seconds on one core. The terms are the overhead of the operations, the work on occupancies, the
matrices of the projection ($c$ is larger once a matrix no longer fits the first cache), and drawing
rewards and constraints. A fixed policy has no matrices, and smaller constants. Where successor
lists are held alone, a power of the number of triples replaces the middle terms. The constants are
fitted to two machines (`python benchmarks/scaling.py --fit` measures and prints them). They are the
same everywhere, since plans of sweeps are made with them and must not depend on the machine. On the
two machines they are right within a factor of three, see `benchmarks/machines.py`; a busy or older
machine takes longer.
"""

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pdgd_jax._internal.memory import free_memory
from pdgd_jax.learners import Learner
from pdgd_jax.models import CMDP, Layers
from pdgd_jax.projection.newton import NewtonOptions
from pdgd_jax.simulation import Carry, Comparators, LaneInputs, start

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
    "listed_triples",
    "variables_of",
]

Shape = tuple[int, int, int]


class Constants(NamedTuple):
    """Seconds on one core.

    Attributes:
      step: per episode, independent of size and number of lanes.
      triple: per lane and each of $L S A S$.
      matrix: per lane and each of $L A S^3$, if a matrix of the projection fits the cache.
      matrix_out: per lane and each of $L A S^3$, if it does not.
      draw: per lane and each of $(1 + m) L S A$.
      compile: to compile the smallest program.
      compile_layer: in addition for each layer.
      compile_state: in addition for each state of a layer.
    """

    step: float
    triple: float
    matrix: float
    matrix_out: float
    draw: float
    compile: float
    compile_layer: float
    compile_state: float


# Printed by `benchmarks/scaling.py --fit`: the best fit, by ratio, to two machines, of which one is
# up to four times as fast as the other (`benchmarks/machines.py`).
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

# Seconds of a lane where n triples of lists are held alone: this times n to that power. The power
# is above one, since systems take more iterations if there are more layers, and wider ones. It is a
# fit to four instances from CliffWalking, with 1,908 triples, to a grid with 97,440
# (`benchmarks/instances.py` prints the times), within a factor of two.
LISTED, LISTED_POWER = 4e-10, 1.7

# A matrix of the projection, [S, S], fits the first cache up to this size.
_CACHE_BYTES = 2**15
# The memory of a process besides its lanes: Python, JAX, and the compiler, which needs more for
# more states per layer.
_PROCESS_BYTES = 3 * 2**28
_PROCESS_BYTES_OF_STATE = 10 * 2**20
# How many arrays of the size of an occupancy a projection holds at once; a generous estimate.
_PROJECTION_ARRAYS = 32

# The learners that were measured; a cost is known for no other, whatever it resembles.
_MEASURED = {
    "pdgd-ops": NEWTON,
    "uc-o-gdps": NEWTON,
    "uniform": FIXED,
    "best-feasible": FIXED,
    "most-feasible": FIXED,
}


def constants_of(learner: str, solver: str) -> Constants | None:
    """The constants of a learner; None if they are unknown."""
    constants = _MEASURED.get(learner)
    return None if constants is NEWTON and solver != "newton" else constants


def episode_seconds(
    shape: Shape,
    lanes: int = 1,
    *,
    num_constraints: int = 1,
    itemsize: int = 8,
    constants: Constants = NEWTON,
    listed: int | None = None,
) -> float:
    """How long a device takes for one episode of all its lanes; see `listed_triples`.

    Example:
      >>> one, many = episode_seconds((4, 4, 3)), episode_seconds((4, 4, 3), lanes=64) / 64
      >>> round(one * 1e6), round(many * 1e6)   # microseconds per lane: alone, and one of 64
      (57, 23)
    """
    L, S, A = shape
    drawing = constants.draw * (1 + num_constraints) * L * S * A
    if listed is not None:
        fixed = constants is FIXED
        own = constants.triple * listed if fixed else LISTED * listed**LISTED_POWER
        return constants.step + lanes * (own + drawing)
    fits = S * S * itemsize <= _CACHE_BYTES
    lane = (
        constants.triple * L * S * A * S
        + (constants.matrix if fits else constants.matrix_out) * L * A * S**3
        + drawing
    )
    return constants.step + lanes * lane


def listed_triples(layers: Layers) -> int | None:
    """The triples of successor lists that the projection holds alone; None if it is dense."""
    L, S, A = layers.shape
    if layers.successors is None or NewtonOptions().dense_variables >= L * S * A * S:
        return None
    return int(layers.num_triples)


def compile_seconds(
    shape: Shape, constants: Constants = NEWTON, listed: int | None = None
) -> float:
    """How long the program takes to compile; with lists alone it hardly depends on their sizes."""
    L, S, _ = shape
    if listed is not None:
        return constants.compile
    return constants.compile + constants.compile_layer * L + constants.compile_state * S


def bytes_of(tree: Any) -> int:
    """The size of the arrays of a tree; its leaves may be shapes without data."""
    return sum(
        math.prod(leaf.shape) * (leaf.dtype.itemsize if hasattr(leaf.dtype, "itemsize") else 8)
        for leaf in jax.tree.leaves(tree)
    )


def lane_bytes(carry: int, data: int) -> int:
    """The memory of a lane on its device: input and output carry, and as much for temporaries."""
    return 4 * carry + data


def variables_of(cmdp: CMDP) -> int:
    """The number of entries (x, a, x') of an occupancy, without padding."""
    states = np.asarray(cmdp.layers.state_mask)[1:].sum(-1)
    pairs = np.asarray(cmdp.layers.action_mask).sum((-2, -1))
    return int((states * pairs).sum())


class Cost(NamedTuple):
    """The estimated cost of a run or a sweep.

    Attributes:
      variables: the number of variables of the largest projection.
      lanes: the number of runs.
      devices: the number of devices that play them.
      episodes: the episodes of all lanes together.
      memory: bytes of the whole process.
      compile_seconds: the time to compile; None if unknown.
      play_seconds: the time to play; None if unknown.
      reason: why the time is unknown.
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
        """The total time; None if unknown."""
        if self.compile_seconds is None or self.play_seconds is None:
            return None
        return self.compile_seconds + self.play_seconds

    def facts(self) -> dict[str, Any]:
        """The cost with its total, for JSON."""
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
    """Estimate the cost of runs with several seeds, without compiling anything.

    Args:
      cmdp: the CMDP to play.
      learner: the learner.
      num_episodes: T.
      seeds: the number of runs.
      name: the name of the learner.
      solver: the solver of its projection.
      devices: the number of devices.
    """
    used = min(devices, seeds)
    width = -(-seeds // used)
    shape, dtype = cmdp.layers.shape, cmdp.mdp.transition.dtype
    carry, what = jax.eval_shape(_begun, cmdp, learner.as_pytree())
    each = lane_bytes(bytes_of(carry), bytes_of(what))
    constants, reason = _known(name, solver)
    listed = listed_triples(cmdp.layers)
    compiling = playing = None
    if constants is not None:
        once = episode_seconds(
            shape,
            width,
            num_constraints=cmdp.num_constraints,
            itemsize=dtype.itemsize,
            constants=constants,
            listed=listed,
        )
        compiling, playing = compile_seconds(shape, constants, listed), num_episodes * once
    return Cost(
        variables=variables_of(cmdp) if listed is None else int(cmdp.layers.num_triples),
        lanes=seeds,
        devices=used,
        episodes=num_episodes * seeds,
        memory=_memory(used, width, each, shape, dtype.itemsize, constants, listed),
        compile_seconds=compiling,
        play_seconds=playing,
        reason=reason,
    )


def _begun(cmdp: CMDP, learner: Learner) -> tuple[Carry, LaneInputs]:
    """A lane before its first episode, and its inputs; only the shapes are right."""
    default, shape = Comparators.default(cmdp), cmdp.layers.shape
    # Placeholders for the optimal and the most feasible occupancy, which linear programs find
    # later.
    found = jnp.zeros((2, *shape, shape[1]), default.occupancies.dtype)
    what = LaneInputs(cmdp, learner, Comparators(found, default.multipliers))
    return start(jax.random.key(0), *what), what


def cost_of_plan(plan: "Plan", devices: int, processes: int = 1) -> Cost:
    """Estimate the cost of a whole sweep.

    Args:
      plan: the plan of the sweep.
      devices: the number of devices of each process.
      processes: the number of processes that share the work.
    """
    solver = plan.configuration.solver
    memory, variables, compiling, playing, reason = 0, 0, 0.0, 0.0, ""
    itemsize = jnp.result_type(float).itemsize
    for group in plan.groups:
        used = max(1, min(devices, -(-len(group.blocks) // processes)))
        L, S, A = group.shape
        variables = max(variables, group.listed or L * S * A * S)
        each = group.bytes_per_lane
        constants, why = _known(group.learners[0], solver)
        reason = reason or why
        needed = _memory(used, group.width, each, group.shape, itemsize, constants, group.listed)
        memory = max(memory, needed)
        if constants is not None:
            compiling += compile_seconds(group.shape, constants, group.listed)
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
    """The time of a group: blocks are played in rounds, each as long as its longest block."""
    once = episode_seconds(
        group.shape,
        group.width,
        num_constraints=group.num_constraints,
        itemsize=itemsize,
        constants=constants,
        listed=group.listed,
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
    what = f"solver {solver!r}" if learner in _MEASURED else f"learner {learner!r}"
    return None, f"not measured for {what}"


def _memory(
    devices: int,
    width: int,
    each: int,
    shape: Shape,
    itemsize: int,
    constants: Constants | None,
    listed: int | None,
) -> int:
    L, S, A = shape
    # The data of all lanes are first assembled on the host.
    lanes = 2 * devices * width * each
    if constants is FIXED:
        return _PROCESS_BYTES + lanes
    # On a CPU lanes are projected one after another, or a few small ones together.
    together = 1 if jax.default_backend() == "cpu" else width
    variables = L * S * A * S if listed is None else listed
    projection = together * _PROJECTION_ARRAYS * variables * itemsize
    # Programs of lists do not grow with the states.
    compiler = S * _PROCESS_BYTES_OF_STATE if listed is None else 0
    return _PROCESS_BYTES + compiler + lanes + devices * projection


def free_bytes() -> int | None:
    """The free memory of the device; None if unknown."""
    statistics = jax.local_devices()[0].memory_stats()
    if statistics and "bytes_limit" in statistics:
        return int(statistics["bytes_limit"] - statistics.get("bytes_in_use", 0))
    return free_memory()
