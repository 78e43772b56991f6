"""An instance in a configuration."""

import dataclasses
from collections.abc import Callable

from pdgd_jax._internal.typing import Table
from pdgd_jax.instances import make_for
from pdgd_jax.models import CMDP

__all__ = ["Instance"]


@dataclasses.dataclass(frozen=True)
class Instance:
    """An instance of a configuration, not built yet.

    Attributes:
      make: its registered name.
      label: its unique name in results.
      options: options for `make`.
      where: returns file and line, for errors.
    """

    make: str
    label: str
    options: Table
    where: Callable[[], str] = dataclasses.field(default=str, compare=False, repr=False)

    def build(self, horizon: int) -> CMDP:
        """Build the CMDP.

        Args:
          horizon: T, the default of an option `num_episodes` if the instance has one.

        Raises:
          ValueError: if an option is invalid; the error names its place in the configuration.
        """
        try:
            return make_for(self.make, horizon, **self.options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.where()}instance {self.label!r}: {error}") from error
