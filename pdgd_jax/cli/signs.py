"""Terminals that cannot show every sign: what to write instead."""

import codecs
import io
import sys
import unicodedata

from rich.console import Console

__all__ = ["only_ascii", "write_what_can_be_written"]

# What Unicode's own decomposition has no ASCII for.
_INSTEAD = {"±": "+-", "∞": "inf", "·": ".", "≤": "<=", "≥": ">="}
_INSTEAD |= {"┤": "+", "│": "|", "└": "+", "─": "-", "—": "-"}


def only_ascii(console: Console) -> bool:
    """Whether the terminal shows no more than ASCII for certain."""
    return not console.encoding.lower().startswith("utf")


def write_what_can_be_written() -> None:
    """Let no sign end a run: what the output's encoding lacks is written in ASCII."""
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
