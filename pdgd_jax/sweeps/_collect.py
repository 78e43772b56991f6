"""Combines the rows of finished blocks into one Dataset."""

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from pdgd_jax._internal.pytree import as_array
from pdgd_jax._internal.typing import Arrays
from pdgd_jax.learners import declaration_of
from pdgd_jax.results import PROBABILITY, QUANTITIES, Quantity, dataset_of, evaluate, versions
from pdgd_jax.simulation import (
    History,
    checkpoint_episodes,
    from_arrays,
    history_of,
    stacked,
    start,
)
from pdgd_jax.sweeps._lanes import SETTINGS, LaneBuilder
from pdgd_jax.sweeps._plan import DIMS, Block, Group, Lane, Plan, dims_of

if TYPE_CHECKING:
    import xarray

__all__ = ["gather"]


def gather(
    plan: Plan,
    builder: LaneBuilder,
    rows: Callable[[Block], Arrays],
    policy: Callable[[Block], np.ndarray],
) -> "xarray.Dataset":
    """Evaluate all runs, and combine them into one Dataset.

    Args:
      plan: the plan that was played.
      builder: the builder of the lanes.
      rows: returns the metrics of a block, `[checkpoints, lanes, ...]` by name.
      policy: returns the last policies of a block, `[lanes, L, S, A]`.

    Returns:
      The Dataset of `sweep`.
    """
    full = _Full(plan)
    for group in plan.groups:
        # Runs of one instance and horizon are evaluated together, since they share linear programs.
        found: dict[tuple[int, int], list[tuple[Lane, History]]] = {}
        for block in group.blocks:
            for lane, history in _histories(
                plan, builder, group, block, rows(block), policy(block)
            ):
                found.setdefault((lane.cell.instance, lane.cell.horizon), []).append(
                    (lane, history)
                )
        for runs in found.values():
            lanes = [lane for lane, _ in runs]
            history = jax.tree.map(lambda *leaves: np.stack(leaves), *[run for _, run in runs])
            cell = lanes[0].cell
            cmdp = builder.padded(cell.instance, cell.horizon, group.shape)
            full.put(lanes, dataset_of(history, evaluate(history, cmdp), dims=("lane",)))
    return full.dataset()


def _histories(
    plan: Plan, builder: LaneBuilder, group: Group, block: Block, rows: Arrays, policy: np.ndarray
) -> list[tuple[Lane, History]]:
    episodes = checkpoint_episodes(block.horizon, plan.configuration.checkpoints)
    cells = {lane.cell for lane in block.lanes}
    of = {cell: builder.inputs(cell, group.shape) for cell in cells}
    inputs = stacked([of[lane.cell] for lane in block.lanes])
    one: Any = jax.eval_shape(
        lambda lane: start(jax.random.key(0), *lane).metrics, of[block.lanes[0].cell]
    )
    size = (len(episodes), len(block.lanes))
    like = jax.tree.map(lambda x: jax.ShapeDtypeStruct((*size, *x.shape), x.dtype), one)
    kept = from_arrays(like, rows)
    metrics = jax.tree.map(lambda x: as_array(np.moveaxis(x, 0, 1)), kept)
    ends = as_array(np.broadcast_to(np.array(episodes, np.int32), size[::-1]))
    last = as_array(policy[: len(block.lanes)])
    together = history_of(metrics, ends, last, inputs.learner, inputs.comparators)
    return [
        (lane, jax.tree.map(lambda x, i=i: np.asarray(x)[i], together))
        for i, lane in enumerate(block.lanes)
    ]


class _Full:
    """The arrays of the results, filled part by part."""

    def __init__(self, plan: Plan) -> None:
        asked = self.asked = plan.configuration
        L, S, A = np.max([group.shape for group in plan.groups], axis=0)
        self.lengths: dict[str, int] = {
            "instance": len(asked.instances),
            "learner": len(asked.learners),
            **{name: len(getattr(asked, name)) for name in DIMS[2:6]},
            **{option.dim: len(option.values) for option in asked.options},
            "seed": asked.seeds,
            "checkpoint": asked.checkpoints,
            "constraint": max(group.num_constraints for group in plan.groups),
            "layer": int(L),
            "state": int(S),
            "action": int(A),
        }
        self.dims = dims_of(asked)
        self.settings = (*SETTINGS, *(option.dim for option in asked.options))
        self.uses_setting = _uses_setting(plan, self.settings)
        self.theorems: dict[str, str] = {}
        self.abouts: dict[str, str] = {}
        self.probabilities: dict[str, float] = {}
        self.pieces: list[tuple[list[Lane], xarray.Dataset]] = []

    def put(self, lanes: list[Lane], dataset: "xarray.Dataset") -> None:
        names, theorems = dataset.certificate.values, dataset.theorem.values
        self.theorems |= dict(zip(names.tolist(), theorems.tolist(), strict=True))
        self.abouts |= dict(zip(names.tolist(), dataset.about.values.tolist(), strict=True))
        for name, probability in zip(names, dataset.probability.values.tolist(), strict=True):
            known = self.probabilities.get(name, probability)
            self.probabilities[name] = float(np.fmin(known, probability))
        self.pieces.append((lanes, dataset))

    def dataset(self) -> "xarray.Dataset":
        import xarray

        asked = self.asked
        self.lengths["certificate"] = len(self.theorems)
        variables = {
            name: (
                (*self.dims, *quantity.axes),
                self._values(quantity),
                {"long_name": quantity.long_name, "units": quantity.units},
            )
            for name, quantity in QUANTITIES.items()
        }
        episodes = [checkpoint_episodes(T, asked.checkpoints) for T in asked.horizon]
        played = {"long_name": "episodes played", "units": "episodes"}
        coordinates = {
            "instance": [entry.label for entry in asked.instances],
            "learner": list(asked.learners),
            "rates": list(asked.rates_labels),
            "delta": ("delta", np.array(asked.delta, float), {"units": "1"}),
            "confidence_scale": (
                "confidence_scale",
                np.array(asked.confidence_scale, float),
                {"units": "1"},
            ),
            "horizon": ("horizon", np.array(asked.horizon), {"units": "episodes"}),
            "seed": np.arange(asked.seeds),
            "episode": (("horizon", "checkpoint"), np.array(episodes), played),
            "certificate": list(self.theorems),
            "theorem": ("certificate", list(self.theorems.values())),
            "about": ("certificate", list(self.abouts.values())),
            "probability": ("certificate", list(self.probabilities.values()), PROBABILITY),
            **{option.dim: (option.dim, option.coordinate) for option in asked.options},
            "setting": list(self.settings),
            "uses_setting": (
                ("learner", "setting"),
                self.uses_setting,
                {"long_name": "whether results of a learner depend on a setting", "units": "1"},
            ),
            **_declarations(asked.learners),
        }
        attributes = {
            "configuration": json.dumps(asked.as_dict()),
            "versions": json.dumps(versions()),
            "key": asked.key,
        }
        return xarray.Dataset(variables, coordinates, attributes)

    def _values(self, quantity: Quantity) -> np.ndarray:
        name, axes = quantity.name, quantity.axes
        first = self.pieces[0][1][name].values
        text = first.dtype.kind == "U"
        size = [self.lengths[axis] for axis in (*self.dims, *axes)]
        full = np.full(size, quantity.absent, object)
        if not text:
            padded = first.dtype.kind == "f"
            full = np.full(size, np.nan) if padded else np.zeros(size, first.dtype)
        for lanes, dataset in self.pieces:
            values = dataset[name].values
            where = tuple(np.arange(n) for n in values.shape[1:])
            if axes == ("certificate",):
                order = list(self.theorems)
                where = (np.array([order.index(c) for c in dataset.certificate.values.tolist()]),)
            for lane, value in zip(lanes, values, strict=True):
                target = full[self._place(lane)]
                target[(..., *np.ix_(*where))] = value
        return full.astype(str) if text else full

    def _place(self, lane: Lane) -> tuple[Any, ...]:
        """The index of a lane: one position, or all along the settings that its learner ignores."""
        cell, asked = lane.cell, self.asked
        places = {
            **{axis: getattr(cell, axis) for axis in DIMS[:-1]},
            **dict(zip((o.dim for o in asked.options), cell.options, strict=True)),
            "seed": lane.seed,
        }
        return tuple(
            slice(None) if axis in cell.repeats else slice(places[axis], places[axis] + 1)
            for axis in self.dims
        )


def _uses_setting(plan: Plan, settings: Sequence[str]) -> np.ndarray:
    """`[learner, setting]`: whether a learner was played at each value of a setting, or once."""
    uses = np.ones((len(plan.configuration.learners), len(settings)), bool)
    for _, block in plan.blocks():
        for cell in {lane.cell for lane in block.lanes}:
            uses[cell.learner] = [setting not in cell.repeats for setting in settings]
    return uses


def _declarations(learners: Sequence[str]) -> dict[str, Any]:
    """What the learners know and see, as coordinates."""
    found = [declaration_of(name) for name in learners]
    return {
        "knows": (
            "learner",
            [declaration.knows_in_words for declaration in found],
            {"long_name": "what a learner knows before the first episode"},
        ),
        "feedback": (
            "learner",
            [declaration.feedback for declaration in found],
            {"long_name": "what a learner sees of an episode: full, bandit or none"},
        ),
    }
