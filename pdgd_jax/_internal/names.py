"""Names that a person may mistype."""

import difflib
from collections.abc import Iterable

__all__ = ["nearest"]


def nearest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """` (did you mean 'grid'?)` if something known is close to the word, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=cutoff)
    return f" (did you mean {close[0]!r}?)" if close else ""
