"""An option of a learner in a configuration, with the values to sweep over."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from pdgd_jax._internal.options import brief
from pdgd_jax._internal.typing import NDArray

__all__ = ["Option", "OptionValue", "options_at"]

OptionValue = float | str | bool | tuple[object, ...]


@dataclasses.dataclass(frozen=True)
class Option:
    """An option of one learner; the others ignore it.

    Attributes:
      learner: the name of the learner.
      name: the name of the option.
      values: its values, all different; "default" stands for an option that is not given.
      where: returns file and line, for errors.
    """

    learner: str
    name: str
    values: tuple[OptionValue, ...]
    where: Callable[[], str] = dataclasses.field(default=str, compare=False, repr=False)

    @property
    def dim(self) -> str:
        """The name of its dimension in results: "ucpd.V"."""
        return f"{self.learner}.{self.name}"

    @property
    def coordinate(self) -> NDArray:
        """Its values along that dimension: numbers if all are, else text."""
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in self.values):
            return np.array(self.values)
        return np.array([brief(value) for value in self.values])


def options_at(
    options: Sequence[Option], learner: str, places: Sequence[int]
) -> dict[str, OptionValue]:
    """The options of a learner in a cell.

    Args:
      options: those of the configuration.
      learner: the name of the learner.
      places: the position of the value of each option.
    """
    return {
        option.name: option.values[place]
        for option, place in zip(options, places, strict=True)
        if option.learner == learner
    }
