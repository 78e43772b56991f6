"""Type aliases shared by many files."""

from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key

__all__ = [
    "Arrays",
    "Count",
    "Flag",
    "MaybeKey",
    "NDArray",
    "Number",
    "OneKey",
    "Pairs",
    "Table",
    "Traced",
    "Triples",
]

# An array on the host, of any shape and type.
NDArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]

# Arrays on the host by name, as they are saved.
Arrays: TypeAlias = dict[str, NDArray]

# A table of JSON or TOML.
Table: TypeAlias = dict[str, Any]

# Scalars, which may be traced.
Number: TypeAlias = Float[Array, ""]
Count: TypeAlias = Int[Array, ""]
Flag: TypeAlias = Bool[Array, ""]
OneKey: TypeAlias = Key[Array, ""]
MaybeKey: TypeAlias = OneKey | None  # None is enough where nothing is random
Traced: TypeAlias = Number | Count | float

# Numbers for each (x, a), and for each (x, a, x'): without and with successor lists.
Pairs: TypeAlias = Float[Array, "layers states actions"]
Triples: TypeAlias = Float[Array, "layers states actions states"] | Float[Array, "layers triples"]
