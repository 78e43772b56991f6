"""The constants of the entropic projection, with the reasons for their values."""

import dataclasses

__all__ = ["DEFAULT", "EntropicOptions"]


@dataclasses.dataclass(frozen=True)
class EntropicOptions:
    """The options of the solver; they affect how long it takes, never which point it finds.

    Attributes:
      max_steps: the most steps. From a start of zeros random targets spread over 300 orders of
        magnitude took at most 17; warm-started projections take 2 to 4. More only delay lanes that
        cannot converge.
      far: steps are taken in logarithms while the residual is larger. There inflow and outflow of
        some state differ by a factor of two. If smaller, more steps cost a forward pass.
      longest: the largest change of a potential in one Newton step on the dual. If larger, some
        steps overshoot and are shortened; if smaller, steps are more.
      farthest: the same for a step in logarithms, which may be much longer and still be right.
      damping: what is added to the diagonal of the scaled Hessian, times the residual. If larger,
        convergence is slower than quadratic; without it a singular Hessian stops a lane.
      refusals: after so many shortened Newton steps a scaling step is taken.
      variables_at_once_cpu: on a CPU, lanes are solved in groups of about this many variables, as
        by the Newton solver of the Euclidean projection.
      variables_at_once: the same on other devices.
    """

    max_steps: int = 400
    far: float = 0.5
    longest: float = 3.0
    farthest: float = 1e6
    damping: float = 1e-6
    refusals: int = 3
    variables_at_once_cpu: int = 3200
    variables_at_once: int = 2**24


DEFAULT = EntropicOptions()
