"""Selects a part of the results."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pdgd_jax._internal.registry import nearest

if TYPE_CHECKING:
    import xarray

__all__ = ["select"]


def select(dataset: "xarray.Dataset", words: Sequence[str]) -> "xarray.Dataset":
    """Select a part of the results.

    Args:
      dataset: a Dataset of `sweep` or `open_results`.
      words: `NAME=VALUE` or `NAME=VALUE,VALUE`, where NAME is a dimension, such as `learner` or
        `ucpd.V`, and VALUE one of its labels. Several words for one name are combined; other
        dimensions keep all their values.

    Raises:
      ValueError: if a name or value is unknown; the error lists the known ones.
    """
    dims = [str(dim) for dim in dataset["regret"].dims if dim != "checkpoint"]
    chosen: dict[str, list[int]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        name = name.strip()
        name = name if name in dims else name.replace("-", "_")
        if not equals or name not in dims:
            raise ValueError(
                f"{word}: write NAME=VALUE, NAME being one of {', '.join(dims)}"
                f"{nearest(name, dims)}."
            )
        known = [str(known) for known in dataset[name].to_numpy()]
        chosen.setdefault(name, []).extend(_places(word, name, value.strip(), known))
    return dataset.isel({name: sorted(set(places)) for name, places in chosen.items()})


def _places(word: str, name: str, value: str, known: list[str]) -> list[int]:
    """The positions of the values, one or several separated by commas."""
    values = [value] if value in known else [part.strip() for part in value.split(",")]
    places = []
    for asked in values:
        found = [i for i, other in enumerate(known) if _same(other, asked)]
        if not found:
            raise ValueError(f"{word}: {name} is one of {', '.join(known)}{nearest(asked, known)}.")
        places += found
    return places


def _same(known: str, asked: str) -> bool:
    """Equal as words or as numbers: 1e4 is 10000."""
    try:
        return known == asked or float(known) == float(asked)
    except ValueError:
        return False
