"""Numbers formatted for people."""

import math

__all__ = ["count_in_words", "duration_in_words", "number_in_words", "size_in_words"]

# The rounding error of a sum over a run, relative to its terms, is far below this.
_NOTHING = 1e-9


def number_in_words(value: float, digits: int = 4, scale: float = 0.0) -> str:
    """A number with `digits` significant digits, and all digits before the decimal point.

    Args:
      value: the number.
      digits: the number of significant digits.
      scale: how large the number could be, such as T L for a regret. A value a billion times
        smaller is a rounding error, and shown as 0.

    Example:
      >>> number_in_words(5.457e-12), number_in_words(5.457e-12, scale=4000), number_in_words(2e4)
      ('5.457e-12', '0', '20,000')
    """
    if not math.isfinite(value):
        return "-" if math.isnan(value) else ("∞" if value > 0 else "-∞")
    if abs(value) <= _NOTHING * scale:
        return "0"
    return f"{value:,.0f}" if abs(value) >= 10**digits else f"{value:,.{digits}g}"


def count_in_words(number: int, what: str) -> str:
    """A count with its noun: 1 seed, 2 seeds."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def size_in_words(number: float) -> str:
    """A number of bytes, such as 3.5 GiB."""
    number = min(number, 10**300)  # larger integers overflow a float
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            return f"{number:.3g} {unit}"
        number /= 1024
    return f"{number:.3g} PiB"


def duration_in_words(seconds: float) -> str:
    """A duration, such as 40 s, 3 min 20 s, 5 h 7 min or 12 days."""
    seconds = round(seconds)
    hours, minutes = seconds // 3600, seconds // 60 % 60
    if hours >= 72:
        return f"{hours // 24:,} days"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds % 60} s" if minutes else f"{seconds} s"
