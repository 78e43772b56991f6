"""Types that many files name."""

from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

__all__ = ["Arrays", "Count", "Flag", "NDArray", "Number", "OneKey", "PyTree"]

# An array on the host, of any shape and type.
NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Arrays on the host by name, as they are saved.
Arrays: TypeAlias = dict[str, NDArray]

# A tree whose structure only its owner knows: the state of a learner, process or solver.
PyTree: TypeAlias = Any

# Scalars, which may be traced.
Number: TypeAlias = Float[Array, ""]
Count: TypeAlias = Int[Array, ""]
Flag: TypeAlias = Bool[Array, ""]
OneKey: TypeAlias = Key[Array, ""]
