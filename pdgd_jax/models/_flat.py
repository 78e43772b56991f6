"""The transitions of a flat MDP as lists: only the steps that can happen."""

import math
from typing import NamedTuple

import numpy as np

from pdgd_jax._internal.checks import check_sums, first_place, place, rounding_of_sums
from pdgd_jax._internal.typing import NDArray

__all__ = ["FlatSteps", "steps_of_dense", "steps_of_lists"]


class FlatSteps(NamedTuple):
    """The steps of each pair of a flat MDP.

    Attributes:
      following: `[T, N, A, K]`, the next states in ascending order, then -1 where there are no
        more. T is the horizon, or 1 if all steps are alike.
      chance: `[T, N, A, K]`, their probabilities, positive; 0 where there is none.
    """

    following: NDArray
    chance: NDArray

    def at(self, time: int) -> "FlatSteps":
        """The steps at one time, `[N, A, K]`."""
        time = min(time, len(self.chance) - 1)
        return FlatSteps(self.following[time], self.chance[time])

    @property
    def num_steps(self) -> float:
        """How many steps there are at one time, on average."""
        return float((self.following >= 0).sum() / len(self.following))


def steps_of_dense(P: NDArray, actions: NDArray) -> FlatSteps:
    """The steps of `[T, N, A, N]`; pairs that are not in `actions`, `[N, A]`, have none."""
    _check_chances(P, np.broadcast_to(np.arange(P.shape[3]), P.shape), actions)
    pair, following = np.nonzero(np.where(actions[..., None], P, 0).reshape(-1, P.shape[3]))
    return _in_rows(P.shape[:3], pair, following, P.reshape(-1, P.shape[3])[pair, following])


def steps_of_lists(
    successors: NDArray, chance: NDArray, actions: NDArray, num_states: int
) -> FlatSteps:
    """The steps of lists `[T, N, A, K]` in any order; a state named twice counts twice.

    Raises:
      ValueError: if an entry names no state, or has a probability although it is -1.
    """
    if successors.dtype.kind not in "iu" or successors.shape != chance.shape:
        raise ValueError(
            "successors must be whole numbers in the shape of transition, "
            f"{chance.shape[1:]}; got {successors.dtype} in the shape {successors.shape[1:]}."
        )
    real = np.broadcast_to(actions[None, ..., None], successors.shape)
    wrong = first_place(real & ((successors < -1) | (successors >= num_states)))
    if wrong is not None:
        raise ValueError(
            f"a successor of {place(wrong[:3], 'step')} is {successors[wrong]}; the states are 0 "
            f"to {num_states - 1}, and -1 is none."
        )
    _check_chances(chance, successors, actions)
    wrong = first_place(real & (successors < 0) & (chance != 0))
    if wrong is not None:
        raise ValueError(
            f"transition of {place(wrong[:3], 'step')} is {chance[wrong]} where successors has no "
            "state (-1); it must be 0 there."
        )
    entry = np.flatnonzero(real & (successors >= 0) & (chance > 0))
    pair, following = entry // successors.shape[3], successors.reshape(-1)[entry]
    order = np.lexsort((following, pair))
    pair, following = pair[order], following[order]
    new = (np.diff(pair, prepend=-1) != 0) | (np.diff(following, prepend=-1) != 0)
    total = np.zeros(int(new.sum()), chance.dtype)
    np.add.at(total, np.cumsum(new) - 1, chance.reshape(-1)[entry[order]])
    return _in_rows(successors.shape[:3], pair[new], following[new], total)


def _in_rows(
    shape: tuple[int, ...], pair: NDArray, following: NDArray, chance: NDArray
) -> FlatSteps:
    """Lay out steps that are ordered by pair, then by next state; no step occurs twice."""
    rows = math.prod(shape)
    begin = np.searchsorted(pair, np.arange(rows))
    width = int(np.bincount(pair, minlength=rows).max(initial=0))
    lists, chances = np.full((rows, width), -1), np.zeros((rows, width), chance.dtype)
    index = pair, np.arange(len(pair)) - begin[pair]
    lists[index], chances[index] = following, chance
    return FlatSteps(lists.reshape(*shape, width), chances.reshape(*shape, width))


def _check_chances(P: NDArray, following: NDArray, actions: NDArray) -> None:
    if not actions.any(-1).all():
        raise ValueError(f"state {int(np.argmin(actions.any(-1)))} has no action; it needs one.")
    where = first_place(~(np.isfinite(P) & (P >= 0)) & actions[None, :, :, None])
    if where is not None:
        step = (*where[:3], int(following[where]))
        raise ValueError(
            f"transition of {place(step, 'step')} is {P[where]}; it must be a probability."
        )
    check_sums("transition", P, rounding_of_sums(P), actions, first="step")
