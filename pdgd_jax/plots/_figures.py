"""All figures by name, and what they show."""

import dataclasses
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from pdgd_jax._internal.registry import Registry
from pdgd_jax.plots import _curves, _models
from pdgd_jax.plots._certificates import certificates
from pdgd_jax.plots._horizons import horizons
from pdgd_jax.plots._tradeoff import tradeoff
from pdgd_jax.results import QUANTITIES

__all__ = ["FIGURES", "Figure"]


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure; call it to draw.

    Attributes:
      draw: the function of `plots`.
      of_an_instance: whether it draws an instance and a policy instead of results.
      all_horizons: whether it is about all horizons instead of the longest.
      in_panels: whether it has a single axis, so that `facets` can draw it for each instance.
    """

    draw: Callable[..., Any]
    of_an_instance: bool = False
    all_horizons: bool = False
    in_panels: bool = False

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Draw it."""
        return self.draw(*args, **options)

    @property
    def options(self) -> tuple[str, ...]:
        """The names of its options, such as "log"."""
        return tuple(inspect.signature(self.draw).parameters)


def _of_quantities() -> dict[str, Figure]:
    """One figure for each quantity with a curve."""
    found: dict[str, Figure] = {}
    for name, quantity in QUANTITIES.items():
        if quantity.curve is not None:
            figure = quantity.curve.figure or name.replace("_", "-")
            found.setdefault(figure, Figure(partial(_curves.curve, name=name), in_panels=True))
    return found


# The figures below, and one for each quantity that none of them draws.
FIGURES = Registry[Figure]("figure", listing="there are {names}.", more=_of_quantities)
FIGURES.add("regret", Figure(_curves.regret, in_panels=True))
FIGURES.add("violation", Figure(_curves.violation, in_panels=True))
FIGURES.add("positive-violation", Figure(_curves.positive_violation, in_panels=True))
FIGURES.add("multipliers", Figure(_curves.multipliers, in_panels=True))
FIGURES.add("reward", Figure(_curves.reward, in_panels=True))
FIGURES.add("tradeoff", Figure(tradeoff, in_panels=True))
FIGURES.add("horizons", Figure(horizons, all_horizons=True))
FIGURES.add("radius", Figure(_curves.radius, in_panels=True))
FIGURES.add("solver", Figure(_curves.solver))
FIGURES.add("certificates", Figure(certificates, all_horizons=True))
FIGURES.add("policy", Figure(_models.policy, of_an_instance=True))
FIGURES.add("occupancy", Figure(_models.occupancy, of_an_instance=True))
FIGURES.add("grid", Figure(_models.grid, of_an_instance=True))
