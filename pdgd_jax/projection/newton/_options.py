"""The constants of the Newton solver, with the reasons for their values."""

import dataclasses
import math

from pdgd_jax.projection._opening import OPENED

__all__ = ["DEFAULT", "NewtonOptions"]


@dataclasses.dataclass(frozen=True)
class NewtonOptions:
    """The options of the Newton solver.

    They affect how long a projection takes and, in extreme cases, whether it converges, but never
    which point is the projection. Each entry says what the option is, why it has this value, and
    the effect of a larger or smaller one. Times are those of projections recorded in learning runs.

    Attributes:
      local_steps: the most Newton steps without a line search. Recorded projections take 3 to 5,
        and nearly all that converge do so within ten. With more, lanes that never converge waste
        steps; with fewer, lanes that would have converged begin again in the globalised loop.
      rough_variables: local steps begin in single precision if a lane has at least this many
        variables. From about here on this saves 0.1 to 0.2 of the time. If smaller, small instances
        gain nothing and compile for 3 s more; if larger, medium ones are slower.
      rough_residual: single precision ends with the first step that begins below this residual,
        since that step leads close to the exact solution. If larger, double precision takes more of
        the steps; if smaller, single precision takes steps without progress.
      rough_steps: the most steps in single precision. Recorded projections take 3. More are wasted
        if single precision does not suffice; with fewer, double precision takes them.
      global_steps: the most steps of the globalised loop before its potentials move into the
        target. A round seldom needs that many. If larger, potentials may grow until their rounding
        hides the descent; if smaller, there are more rounds.
      hand_over: the potentials first move at a residual of this many times the tolerance, where
        rounding begins to matter. If larger, the next round begins further away; if smaller,
        rounding may keep the first round from getting there.
      rounds: the most rounds of the globalised loop. The first ends early, so that a lane takes at
        least two. More rounds only delay lanes that cannot converge, with targets beyond the
        precision; with fewer, some of the slowest lanes fail.
      rounding: the share of the rounding of target plus potentials that counts as residual. The
        error of a sum is at most half of the rounding. If larger, lanes that are as exact as their
        target allows count as unsolved; if smaller, unsolved lanes count as solved.
      negligible: rounding below this share of the tolerance does not show in the flow of the
        returned point, and a residual below it, times the size of the potentials, does no harm. The
        point is then not checked again. If larger, a residual above the tolerance may be reported
        as below; if smaller, more points are checked.
      opened: the share of the residual that may leave a state because it was opened; this is too
        little to matter. If larger, the outflow of such states keeps the residual from falling; if
        much smaller, the margin is below rounding and the Hessian singular.
      response: the share of a state's loss that its potential makes up for when the start is
        predicted. This value needs the fewest steps. With the full share the inflow would fall as
        well; 0.5 or 0.7 takes up to 0.1 steps more.
      dense_variables: projections with successor lists use dense arrays inside up to this many
        variables, `L S A S`, and elimination. Beyond, they hold the triples alone, and iterate: a
        third of the time for FrozenLake 4 x 4 over ten steps, which has 5,760, and a fifteenth for
        CliffWalking over ten, which has 25,000. Nothing smaller was compared. If larger, dense
        arrays take more time and memory than the lists; if smaller, small ones may iterate longer
        than they would eliminate.
      variables_at_once_cpu: on a CPU, lanes are solved in groups of about this many variables,
        whose arrays fit the first caches. If larger, they do not fit, and a slow lane delays more
        others; if smaller, the fixed cost of a step weighs more.
      variables_at_once: the same on other devices, where groups are as large as memory allows. If
        larger, a batch may not fit; if smaller, an accelerator is idle.

    Raises:
      ValueError: if a number is invalid.

    Example:
      >>> NewtonOptions(local_steps=20).local_steps
      20
      >>> NewtonOptions(response=-1)
      Traceback (most recent call last):
      ...
      ValueError: response must be a number of at least 0; it is -1.
    """

    local_steps: int = 10
    rough_variables: int = 1000
    rough_residual: float = 1e-3
    rough_steps: int = 6
    global_steps: int = 25
    hand_over: float = 1000.0
    rounds: int = 12
    rounding: float = 1 / 2
    negligible: float = 1 / 64
    opened: float = OPENED
    response: float = 0.6
    dense_variables: int = 5000
    variables_at_once_cpu: int = 3200
    variables_at_once: int = 2**24

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, int) and not isinstance(value, int):
                raise ValueError(f"{field.name} must be a whole number; it is {value!r}.")
            elif not 0 <= value < math.inf:
                raise ValueError(f"{field.name} must be a number of at least 0; it is {value!r}.")


DEFAULT = NewtonOptions()
