"""Gymnasium's Blackjack as a table of transitions, which the environment itself does not have.

The deck is infinite, so that the player's sum, whether an ace counts as 11, and the dealer's card
are all there is to know; and whether the player was dealt a natural (an ace and a ten), which some
rules pay. Its observation is that of any other 21 with an ace, but only a first hand can be one.
"""

import functools
from typing import NamedTuple

import numpy as np

from pdgd_jax._internal.typing import NDArray

__all__ = ["HIT", "STICK", "Outcome", "Table", "blackjack_state", "blackjack_table"]

STICK, HIT = 0, 1

Outcome = tuple[float, int, float, bool]  # probability, next state, reward, whether it ends


class Table(NamedTuple):
    """What the other toy-text environments have: `P[state][action]`, and the first states."""

    P: dict[int, dict[int, list[Outcome]]]
    start: NDArray


class _Hand(NamedTuple):
    total: int
    usable: bool  # an ace counts as 11
    natural: bool = False

    def add(self, card: int) -> "_Hand":
        """The hand with one more card; it is bust if its total exceeds 21."""
        hard = self.total - 10 * self.usable + card
        usable = (self.usable or card == 1) and hard + 10 <= 21
        return _Hand(hard + 10 * usable, usable)


_DEALT = {card: (4 if card == 10 else 1) / 13 for card in range(1, 11)}  # probabilities
_HANDS = [
    *(_Hand(total, False) for total in range(4, 22)),
    *(_Hand(total, True) for total in range(12, 22)),
    _Hand(21, True, True),
]
_NUMBER = {hand: number for number, hand in enumerate(_HANDS)}


def _state(hand: _Hand, shown: int) -> int:
    return len(_DEALT) * _NUMBER[hand] + shown - 1


def blackjack_state(observation: tuple[int, int, int], is_first: bool) -> int:
    """The state of the table behind an observation.

    Args:
      observation: the player's sum, the dealer's card, and whether an ace counts as 11.
      is_first: whether the player has taken no card yet; a 21 is then a natural.
    """
    total, shown, usable = (int(part) for part in observation)
    return _state(_Hand(total, bool(usable), is_first and total == 21), shown)


def blackjack_table(natural: bool, sab: bool) -> Table:
    """The exact table.

    Args:
      natural: whether a natural that wins earns 1.5, as in the environment.
      sab: whether a natural wins against every hand but a natural, as in Sutton and Barto's book;
        `natural` is then ignored.
    """
    P: dict[int, dict[int, list[Outcome]]] = {}
    start = np.zeros(len(_HANDS) * len(_DEALT))
    for hand in _HANDS:
        for shown in _DEALT:
            state = _state(hand, shown)
            hits: list[Outcome] = []
            for card, chance in _DEALT.items():
                after = hand.add(card)
                bust = after.total > 21
                following = state if bust else _state(after, shown)
                hits.append((chance, following, -1.0 if bust else 0.0, bust))
            sticks = [
                (chance, state, _paid(hand, score, dealt, natural, sab), True)
                for (score, dealt), chance in _dealer(shown).items()
            ]
            P[state] = {STICK: sticks, HIT: hits}
    for shown, chance in _DEALT.items():
        for first, one in _DEALT.items():
            for second, two in _DEALT.items():
                hand = _dealt(first, second)
                start[_state(hand, shown)] += chance * one * two
    return Table(P, start)


def _dealt(first: int, second: int) -> _Hand:
    """The hand of two cards."""
    hand = _Hand(0, False).add(first).add(second)
    return hand._replace(natural=hand.total == 21)


def _paid(hand: _Hand, score: int, dealer_natural: bool, natural: bool, sab: bool) -> float:
    """The reward of a player who sticks, if the dealer ends with this score (0 if bust)."""
    reward = float(hand.total > score) - float(hand.total < score)
    if sab and hand.natural and not dealer_natural:
        return 1.0
    if natural and not sab and hand.natural and reward == 1:
        return 1.5
    return reward


@functools.cache
def _dealer(shown: int) -> dict[tuple[int, bool], float]:
    """The dealer's last score, and whether it is a natural: the probability of each."""
    found: dict[tuple[int, bool], float] = {}
    for hidden, chance in _DEALT.items():
        hand = _dealt(shown, hidden)
        for score, then in _drawn(hand.total, hand.usable).items():
            key = score, hand.natural
            found[key] = found.get(key, 0.0) + chance * then
    return found


@functools.cache
def _drawn(total: int, usable: bool) -> dict[int, float]:
    """The last scores of a dealer who draws up to 17 or more; 0 if bust."""
    if total >= 17:
        return {total if total <= 21 else 0: 1.0}
    found: dict[int, float] = {}
    for card, chance in _DEALT.items():
        after = _Hand(total, usable).add(card)
        for score, then in _drawn(after.total, after.usable).items():
            found[score] = found.get(score, 0.0) + chance * then
    return found
