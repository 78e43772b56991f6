"""Finds the lines of a traceback that belong to the user's code."""

import contextlib
import sys
import sysconfig
import traceback
from collections.abc import Iterator

__all__ = ["importing", "place_of", "users_traceback"]

_MODULES: set[str] = set()  # top-level names of the user's modules


@contextlib.contextmanager
def importing(module: str) -> Iterator[None]:
    """Record modules imported in this block as the user's, unless they are installed packages."""
    before = set(sys.modules)
    _MODULES.add(module.partition(".")[0])
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file and not file.startswith(_installed()):
                _MODULES.add(name.partition(".")[0])
        _MODULES.discard("pdgd_jax")


def users_traceback(error: BaseException) -> str:
    """The user's lines that led to an error, as Python shows them; empty if there are none."""
    lines: list[str] = []
    for one in _chain(error):
        frames = _frames(one)
        if frames or _is_syntax(one):
            lines += ["Traceback of your code (PDGD_DEBUG=1 shows all of it):\n"] * (not lines)
            lines += traceback.format_list(frames)
            lines += traceback.format_exception_only(one)
    return "".join(lines)


def place_of(error: BaseException) -> str:
    """` (my_module.py, line 3)`, the user's last line that led to an error, or nothing."""
    for one in _chain(error):
        if _is_syntax(one) and isinstance(one, SyntaxError):
            return f" ({one.filename}, line {one.lineno})"
        for summary in reversed(_frames(one)):
            return f" ({summary.filename}, line {summary.lineno}, in {summary.name})"
    return ""


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and its causes, the first one first."""
    seen: list[BaseException] = []
    one: BaseException | None = error
    while one is not None and one not in seen:
        seen.append(one)
        one = one.__cause__ or (None if one.__suppress_context__ else one.__context__)
    yield from reversed(seen)


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    modules = []
    step = error.__traceback__
    while step is not None:
        modules.append(str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0])
        step = step.tb_next
    every = traceback.extract_tb(error.__traceback__)
    return [frame for frame, name in zip(every, modules, strict=True) if name in _MODULES]


def _is_syntax(error: BaseException) -> bool:
    """Whether a user's module has a syntax error, so that no line of it ran."""
    return bool(_MODULES) and isinstance(error, SyntaxError) and error.filename is not None


def _installed() -> tuple[str, ...]:
    return tuple({*sysconfig.get_paths().values()})
