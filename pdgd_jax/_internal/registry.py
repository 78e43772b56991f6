"""The registry class behind instances, learners, solvers, rates, processes and figures."""

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

    A name becomes known in three ways: `add`, `add_lazy` (the object is imported on first use), or
    an entry point of `group` in an installed distribution. Added names take precedence: an entry
    point never replaces one. Entry points are looked up once, when a name is not found or the names
    are listed. Each is imported on use, so that a broken one does not affect the others.

    Args:
      what: what the things are called, as in "unknown solver 'x'".
      listing: the end of that sentence, with `{names}` or `{quoted}` in it.
      group: the group of entry points; None for none.
      valid: whether the object behind an entry point is acceptable.
      more: derives further things, anew on every access; they come after the added ones.

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
        """Register a thing under a name.

        Raises:
          ValueError: if the name is taken by another thing. Adding the same thing twice is fine,
            since a reloaded module does that.
        """
        if name in self._added and self._loaded(name, self._added[name]) is not thing:
            article = "an" if self._what[0] in "aeiou" else "a"
            raise ValueError(f"{article} {self._what} named {name!r} is registered already.")
        self._added[name] = thing

    def add_lazy(self, name: str, home: str) -> None:
        """Register `"module:attribute"` under a new name; it is imported on first use."""
        self._added[name] = EntryPoint(name, home, self._group or "")

    def get(self, name: str) -> T:
        """Look up a name.

        Raises:
          ValueError: if the name is unknown; the error suggests the nearest name and lists all. Or
            if the distribution that offers it is broken; the error names the distribution.
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
        """Remove a name.

        Raises:
          ValueError: if the name is unknown.
        """
        if name not in self:
            self.get(name)
        self._added.pop(name, None)
        self._offers().pop(name, None)

    @contextlib.contextmanager
    def temporarily(
        self, things: Mapping[str, T] | None = None, *, alone: bool = False
    ) -> Iterator[None]:
        """Add things for the duration of a `with` block; they replace things of the same name.

        Everything added or removed inside the block is undone at its end. Entry points are looked
        up again inside.

        Args:
          things: the things by name.
          alone: hide everything else inside, entry points included.
        """
        before = self._added, self._offered
        self._added = {**({} if alone else self._added), **(things or {})}
        self._offered = {} if alone else None
        try:
            yield
        finally:
            self._added, self._offered = before

    def names(self) -> tuple[str, ...]:
        """All names: first those that were added, then those of entry points."""
        return tuple(dict.fromkeys([*self._added, *self._more(), *self._offers()]))

    keys = names

    def items(self) -> Iterator[tuple[str, T]]:
        """Names with their things; lazy ones are imported."""
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
        if thing.dist is None:  # one of this package: let its errors pass
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
                f"the distribution {_owner(thing)!r} offers {thing.value} as {self._what} "
                f"{name!r}, but it is {found!r:.60}, not a {self._what}."
            )
        return cast(T, found)


def _entry_points(group: str) -> dict[str, list[EntryPoint]]:
    """The entry points of a group by name; a file that cannot be read counts as empty.

    `importlib.metadata.entry_points` fails for all distributions if one file is malformed.
    """
    found: dict[str, dict[str, EntryPoint]] = {}
    for distribution in distributions():
        for point in _entry_points_of(distribution, group):
            # If a distribution is installed twice, Python imports the first.
            found.setdefault(point.name, {}).setdefault(_owner(point), point)
    return {name: list(offers.values()) for name, offers in found.items()}


def _entry_points_of(distribution: Distribution, group: str) -> tuple[EntryPoint, ...]:
    try:
        # Reading the text is fast; parsing it for every package is slow.
        if f"[{group}]" in (distribution.read_text("entry_points.txt") or ""):
            return tuple(distribution.entry_points.select(group=group))
    except Exception:
        pass
    return ()


def _owner(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "pdgd_jax"
