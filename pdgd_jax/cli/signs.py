"""Replacements for characters that a terminal cannot show."""

import codecs
import io
import sys
import unicodedata

from rich.console import Console

__all__ = ["only_ascii", "write_what_can_be_written"]

# Characters for which Unicode's decomposition has no ASCII.
_INSTEAD = {"±": "+-", "∞": "inf", "·": ".", "≤": "<=", "≥": ">="}
_INSTEAD |= {"┤": "+", "│": "|", "└": "+", "─": "-", "—": "-"}


def only_ascii(console: Console) -> bool:
    """Whether only ASCII is safe on this terminal."""
    return not console.encoding.lower().startswith("utf")


def write_what_can_be_written() -> None:
    """Write characters that the output encoding lacks in ASCII, instead of failing."""
    codecs.register_error("pdgd_jax.ascii", _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
        if isinstance(stream, io.TextIOWrapper) and not encoding.startswith("utf"):
            stream.reconfigure(errors="pdgd_jax.ascii")


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(map(_instead, signs)), error.end


def _instead(sign: str) -> str:
    plain = unicodedata.normalize("NFKD", sign).encode("ascii", "ignore").decode()
    return _INSTEAD.get(sign) or plain or "?"
