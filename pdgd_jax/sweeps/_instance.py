"""An instance that a configuration asks for."""

import dataclasses
from collections.abc import Callable

from pdgd_jax._internal.typing import Table
from pdgd_jax.instances import make_for
from pdgd_jax.models import CMDP

__all__ = ["Instance"]


@dataclasses.dataclass(frozen=True)
class Instance:
    """An instance that is yet to be built.

    Attributes:
      make: its registered name.
      label: what it is called in results; no two are equal.
      options: for `make`.
      where: gives file and line, for errors.
    """

    make: str
    label: str
    options: Table
    where: Callable[[], str] = dataclasses.field(default=str, compare=False, repr=False)

    def build(self, horizon: int) -> CMDP:
        """The CMDP.

        Args:
          horizon: T, for an instance that depends on it: one with an option `num_episodes` that
            the configuration leaves open.

        Raises:
          ValueError: if an option makes no sense, with the place in the configuration.
        """
        try:
            return make_for(self.make, horizon, **self.options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.where()}instance {self.label!r}: {error}") from error
