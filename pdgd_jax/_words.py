"""Numbers as a person writes them."""

import math

__all__ = ["count_in_words", "number_in_words"]


def number_in_words(value: float, digits: int = 4) -> str:
    """With so many digits that matter, and all those before the point."""
    if not math.isfinite(value):
        return "-" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:,.{digits}g}"


def count_in_words(number: int, what: str) -> str:
    """As in 1 seed, 2 seeds."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"
