"""Comparisons seed by seed, for sweeps with paired random streams.

`pdgd_jax/sweeps/_streams.py` explains how streams are made and paired.
"""

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from pdgd_jax._internal.registry import nearest

if TYPE_CHECKING:
    import xarray

__all__ = ["is_paired", "paired_difference"]


def paired_difference(
    dataset: "xarray.Dataset",
    dim: str,
    a: Any,
    b: Any,
    variable: str,
    *,
    checkpoint: int = -1,
    paired: bool | None = None,
    confidence: float = 0.95,
) -> "xarray.Dataset":
    r"""How much larger `variable` is at `a` than at `b`, with a confidence interval over seeds.

    With paired streams, cells are compared seed by seed: with $d_i = x_i(a) - x_i(b)$ the interval
    is $\bar d \pm t_{n-1} s_d / \sqrt n$. It is narrow if both cells share their luck. With
    independent streams there are no pairs, and the interval is Welch's for two samples.

    Args:
      dataset: a Dataset of `sweep` or `open_results`, or any other with a dimension `seed`.
      dim: the dimension to compare along, such as "learner", "rates" or "instance".
      a: a label of that dimension.
      b: another label.
      variable: the variable to compare, such as "regret" or "violation".
      checkpoint: the checkpoint to compare at, if the variable has any; the last by default.
      paired: whether streams are paired; by default as in the configuration of the Dataset.
      confidence: the confidence level of the interval.

    Returns:
      `mean`, `low` and `high` with all other dimensions of the variable and, for paired streams,
      the `difference` of each seed; the attribute `paired` is 1 or 0. With one seed there is no
      interval, and `low` and `high` are NaN.

    Raises:
      ValueError: if a name or label is unknown, or nothing says whether streams are paired.

    Example:
      >>> from pdgd_jax import paired_difference, sweep
      >>> small = {"make": "random", "sizes": [1, 2, 1], "num_actions": 2}
      >>> data = sweep({"instance": [small], "seeds": 8, "settings": {"horizon": 50},
      ...               "learners": {"names": ["uniform", "most-feasible"]}, "checkpoints": 5})
      >>> found = paired_difference(data, "learner", "most-feasible", "uniform", "violation")
      >>> found = found.squeeze()  # drop settings that were not swept
      >>> bool(found.high < 0), found.attrs["paired"], found.difference.dims
      (True, 1, ('seed',))
    """
    import xarray

    if paired is None:
        paired = _is_paired(dataset)
    values = _numbers(dataset, variable)
    if "seed" not in values.dims:
        raise ValueError(f"{variable} has no dimension 'seed': there is nothing to estimate from.")
    if dim == "seed" or dim not in values.dims:
        known = [str(name) for name in values.dims if name not in ("seed", "checkpoint")]
        raise ValueError(f"{variable} is compared along one of {', '.join(known)}; got {dim!r}.")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence lies strictly between 0 and 1; got {confidence}.")
    if "checkpoint" in values.dims:
        values = values.isel(checkpoint=checkpoint, drop=True)
    one, other = (_at(values, dim, label) for label in (a, b))
    count = values.sizes["seed"]
    mean = one.mean("seed") - other.mean("seed")
    found = {"mean": mean}
    if count < 2:
        half = xarray.full_like(mean, np.nan)
    elif paired:
        half = _half_width(confidence, count - 1) * (one - other).std("seed", ddof=1) / count**0.5
    else:
        first, second = (x.var("seed", ddof=1) / count for x in (one, other))
        both = first + second
        # Welch and Satterthwaite; if nothing varies, any number is fine.
        freedom = (both**2 / (first**2 + second**2).where(both > 0, 1)) * (count - 1)
        half = _half_width(confidence, freedom.where(both > 0, 1)) * both**0.5
    found |= {"low": mean - half, "high": mean + half}
    if paired:
        found["difference"] = one - other
    unit = {name: values.attrs[name] for name in ("long_name", "units") if name in values.attrs}
    attributes = {"variable": variable, "dim": dim, "a": str(a), "b": str(b)}
    result = xarray.Dataset(found, attrs={**attributes, "paired": int(paired), **unit})
    return result.assign_attrs(confidence=confidence)


def is_paired(dataset: "xarray.Dataset") -> bool | None:
    """Whether seed i of every cell played with the same random streams; None if unknown."""
    if "configuration" not in dataset.attrs:
        return None
    return bool(json.loads(dataset.attrs["configuration"]).get("streams", "paired") == "paired")


def _is_paired(dataset: "xarray.Dataset") -> bool:
    paired = is_paired(dataset)
    if paired is None:
        raise ValueError(
            "this Dataset does not say how its random streams were made; pass paired=True if seed "
            "i played with the same key on both sides, or paired=False."
        )
    return paired


def _numbers(dataset: "xarray.Dataset", variable: str) -> "xarray.DataArray":
    known = [str(name) for name, values in dataset.items() if values.dtype.kind in "fiub"]
    if variable not in known:
        raise ValueError(f"{variable!r} cannot be compared; {', '.join(known)} can.")
    return dataset[variable].astype(float, keep_attrs=True)


def _at(values: "xarray.DataArray", dim: str, label: Any) -> "xarray.DataArray":
    labels = values[dim].to_numpy().tolist()
    if label not in labels:
        hint = nearest(str(label), map(str, labels))
        raise ValueError(f"{dim} is one of {', '.join(map(str, labels))}; got {label!r}{hint}.")
    return values.isel({dim: labels.index(label)}, drop=True)


def _half_width(confidence: float, freedom: Any) -> Any:
    from scipy import stats  # takes half a second to import

    quantile = stats.t.ppf((1 + confidence) / 2, freedom)
    return freedom.copy(data=quantile) if hasattr(freedom, "copy") else float(quantile)
