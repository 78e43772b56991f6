"""Things by name: one class behind instances, learners, solvers, rates, processes and figures."""

import contextlib
import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import Generic, TypeVar, cast

__all__ = ["Registry", "nearest"]

T = TypeVar("T")


def nearest(word: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """` (did you mean 'grid'?)` if something known is close to the word, else nothing."""
    close = difflib.get_close_matches(str(word), list(known), n=1, cutoff=cutoff)
    return f" (did you mean {close[0]!r}?)" if close else ""


class Registry(Generic[T]):
    """Things by name, in the order in which they were added.

    A name is known in three ways: by `add`, by `add_lazy` (what it stands for is imported when it
    is asked for), or because an installed distribution offers it as an entry point of `group`.
    Names that were added come first: an entry point never replaces one of them. Entry points are
    looked up once, when a name is not found or the names are listed, and imported when they are
    asked for, so that a broken one harms nobody else.

    Args:
      what: one of the things, as in "unknown solver 'x'".
      listing: the end of that sentence, with `{names}` or `{quoted}` in it.
      group: of entry points; None if there are none.
      valid: whether what an entry point holds is such a thing at all.
      more: things that follow from something else, asked for each time; they come after those that
        were added.

    Example:
      >>> fruits = Registry[int]("fruit")
      >>> fruits.add("apple", 3)
      >>> fruits["apple"], "pear" in fruits, list(fruits)
      (3, False, ['apple'])
      >>> fruits.get("aple")
      Traceback (most recent call last):
      ...
      ValueError: unknown fruit 'aple' (did you mean 'apple'?); the fruits are apple.
    """

    def __init__(
        self,
        what: str,
        *,
        listing: str = "",
        group: str | None = None,
        valid: Callable[[object], bool] = callable,
        more: Callable[[], Mapping[str, T]] | None = None,
    ) -> None:
        self._what = what
        self._listing = listing or f"the {what}s are {{names}}."
        self._group = group
        self._valid = valid
        self._more = more or dict
        self._added: dict[str, T | EntryPoint] = {}
        self._offered: dict[str, list[EntryPoint]] | None = None  # None: not looked up yet

    def add(self, name: str, thing: T) -> None:
        """Let a name stand for a thing.

        Raises:
          ValueError: if it stands for another one already; the same again is no mistake, since a
            module that is reloaded adds it once more.
        """
        if name in self._added and self._loaded(name, self._added[name]) is not thing:
            article = "an" if self._what[0] in "aeiou" else "a"
            raise ValueError(f"{article} {self._what} named {name!r} is registered already.")
        self._added[name] = thing

    def add_lazy(self, name: str, home: str) -> None:
        """Let a new name stand for `"module:attribute"`, imported when it is asked for."""
        self._added[name] = EntryPoint(name, home, self._group or "")

    def get(self, name: str) -> T:
        """What a name stands for.

        Raises:
          ValueError: if the name is unknown, suggesting the nearest and listing all; or if it is
            offered by a distribution that is broken, naming that one.
        """
        if name in self._added:
            return self._loaded(name, self._added[name])
        if name in (more := self._more()):
            return more[name]
        offers = self._offers().get(name)
        if not offers:
            names = tuple(self)
            listing = self._listing.format(
                names=", ".join(names), quoted=", ".join(map(repr, names))
            )
            raise ValueError(f"unknown {self._what} {name!r}{nearest(name, names)}; {listing}")
        if len(offers) > 1:
            owners = ", ".join(sorted(_owner(offer) for offer in offers))
            raise ValueError(
                f"{self._what} {name!r} is offered by several distributions ({owners}); "
                "uninstall all but one of them."
            )
        return self._loaded(name, offers[0])

    __getitem__ = get

    def remove(self, name: str) -> None:
        """Forget a name; an unknown one is refused as by `get`."""
        if name not in self:
            self.get(name)
        self._added.pop(name, None)
        self._offers().pop(name, None)

    @contextlib.contextmanager
    def temporarily(
        self, things: Mapping[str, T] | None = None, *, alone: bool = False
    ) -> Iterator[None]:
        """Know these as well inside, whatever their names stand for outside; forget all after.

        Whatever is added or removed inside is undone at the end, and entry points are looked up
        again inside.

        Args:
          things: by name.
          alone: know nothing else inside, not even entry points.
        """
        before = self._added, self._offered
        self._added = {**({} if alone else self._added), **(things or {})}
        self._offered = {} if alone else None
        try:
            yield
        finally:
            self._added, self._offered = before

    def names(self) -> tuple[str, ...]:
        """All of them: those that were added first, then those of entry points."""
        return tuple(dict.fromkeys([*self._added, *self._more(), *self._offers()]))

    keys = names

    def items(self) -> Iterator[tuple[str, T]]:
        """Names and what they stand for; all that is lazy is imported."""
        return ((name, self.get(name)) for name in self.names())

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __contains__(self, name: object) -> bool:
        return name in self._added or name in self._more() or name in self._offers()

    def _offers(self) -> dict[str, list[EntryPoint]]:
        if self._offered is None:
            self._offered = _entry_points(self._group) if self._group else {}
        return self._offered

    def _loaded(self, name: str, thing: T | EntryPoint) -> T:
        if not isinstance(thing, EntryPoint):
            return thing
        if thing.dist is None:  # one of our own: its errors are ours
            return cast(T, thing.load())
        try:
            found = thing.load()
        except Exception as error:
            raise ValueError(
                f"{self._what} {name!r} of the distribution {_owner(thing)!r} cannot be loaded: "
                f"{type(error).__name__}: {error}"
            ) from error
        if not self._valid(found):
            raise ValueError(
                f"{self._what} {name!r} of the distribution {_owner(thing)!r} is none: "
                f"{thing.value} is {found!r:.60}."
            )
        return cast(T, found)


def _entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; where a file of them cannot be read, it has none.

    `importlib.metadata.entry_points` would fail for all if one file is malformed.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    for distribution in distributions():
        for point in _entry_points_of(distribution, group):
            # Of a distribution that is there twice, the first one is imported.
            found.setdefault(point.name, {}).setdefault(_owner(point), point)
    return {name: list(offers.values()) for name, offers in found.items()}


def _entry_points_of(distribution: Distribution, group: str) -> Iterable[EntryPoint]:
    try:
        # Reading the text is quick; parsing that of all packages is not.
        if f"[{group}]" in (distribution.read_text("entry_points.txt") or ""):
            return distribution.entry_points.select(group=group)
    except Exception:
        pass
    return ()


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "pdgd_jax"
