"""The constants of the Newton solver, with the reasons for their values."""

import dataclasses
import math

from pdgd_jax.projection._opening import OPENED

__all__ = ["DEFAULT", "NewtonOptions"]


@dataclasses.dataclass(frozen=True)
class NewtonOptions:
    """What the Newton solver does by itself, and a person may change.

    They change how long a projection takes, and in extreme cases whether it converges, never which
    point is the projection. For each: what it is, why it has this value, and what more or less of
    it does. Times are those of recorded projections of learning runs.

    Attributes:
      local_steps: the most Newton steps without a line search. Recorded projections take 3 to 5,
        and nearly all that converge do so within ten. With more, lanes that never will waste
        steps; with fewer, lanes that would have converged begin again in the globalised loop.
      rough_variables: local steps begin in single precision where a lane has at least so many
        variables. From about here on they save 0.1 to 0.2 of the time. If smaller, small instances
        gain nothing and compile for 3 s more; if larger, middling ones are slower.
      rough_residual: single precision ends with the first step from below this residual. What that
        step leads to is close to exact. If larger, double precision takes more of the steps; if
        smaller, single precision takes steps that lead no further.
      rough_steps: the most steps in single precision. Recorded projections take 3. More are wasted
        where single precision does not suffice; with fewer, double precision takes them.
      global_steps: the most steps of the globalised loop before its potentials move into the
        target. A round seldom needs so many. If larger, potentials may grow until their rounding
        hides the descent; if smaller, there are more rounds.
      hand_over: the potentials move for the first time at this many times the tolerance, where
        rounding begins to matter. If larger, the next round begins further off; if smaller, the
        first may not get there for rounding.
      rounds: the most rounds of the globalised loop. The first ends early, so that a lane takes at
        least two. More only delay the lanes that cannot converge, whose targets are beyond the
        precision; with fewer some of the slowest lanes are given up.
      rounding: the share of the rounding of target plus potentials that counts as residual. A sum
        is off by at most half of it. If larger, lanes that are as exact as their target can be
        count as undone; if smaller, lanes count as done that are not.
      negligible: rounding below this share of the tolerance is not seen in the flow of the point
        that is returned, and a residual below it, times the size of the potentials, does no harm.
        The point is then not looked at again. If larger, a residual above the tolerance may be
        reported as below; if smaller, more points are looked at.
      opened: the share of the residual that may leave a state because it was opened. It matters
        little then. If larger, what leaves such states keeps the residual from falling; if much
        smaller, the margin is below rounding and the Hessian singular.
      response: the share of what a state loses that its potential makes up for when the start is
        predicted. Steps are fewest here. With all of it less would flow in, too; with 0.5 or 0.7
        there are up to 0.1 steps more.
      variables_at_once_cpu: on a CPU, lanes are solved in groups of about so many variables, whose
        arrays fit the first caches. If larger, they do not, and a slow lane delays more others; if
        smaller, what a step costs whatever its size weighs more.
      variables_at_once: the same elsewhere, where groups are as large as memory allows. If larger,
        a batch may not fit; if smaller, an accelerator is idle.

    Raises:
      ValueError: if a number cannot be what it is meant to be.

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
