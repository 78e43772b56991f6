"""What to sweep over, as a TOML file or a dictionary of the same shape.

```toml
name = "example"             # every key may be left out, but [[instance]] and its make
key = 0                      # decides everything random
seeds = 8
streams = "paired"           # or "independent": see `paired_difference`
checkpoints = 50             # 200, or as many as the shortest horizon has episodes

[[instance]]                 # one or more
make = "random"              # a registered name; further keys are options of the instance
label = "small"              # what figures call it; the name, if left out
sizes = [1, 3, 3, 1]

[settings]                   # each a value or a list of values
horizon = [1000, 3000]
rates = ["tuned", "theory", [4.0, 0.01]]
delta = 0.05
confidence_scale = [1.0, 0.3]

[learners]
names = ["pdgd-ops", "uniform"]
solver = "newton"
```

`read_configuration` reads a file or a built-in configuration, `Configuration.from_dict` takes a
dictionary; both check the same. Whatever is wrong is one sentence that begins with file and line.
Names and labels are data: no file is ever called after them.
"""

import contextlib
import dataclasses
import functools
import json
import math
import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

from pdgd_jax._internal.checks import is_number, is_whole, whole_number
from pdgd_jax._internal.registry import nearest
from pdgd_jax._internal.typing import Table
from pdgd_jax.instances import builder_of, check_value, make_for
from pdgd_jax.learners import RATES, registered_learners
from pdgd_jax.models import CMDP
from pdgd_jax.projection import SOLVERS

__all__ = ["STREAMS", "Configuration", "Instance", "builtin_names", "read_configuration"]

Rates = str | tuple[float, float]
KeyPath = tuple[str | int, ...]  # of a key: ("instance", 0, "sizes")
T = TypeVar("T")

STREAMS = ("paired", "independent")
_KEYS = {
    "": ("name", "key", "seeds", "streams", "checkpoints", "instance", "settings", "learners"),
    "settings": ("horizon", "rates", "delta", "confidence_scale"),
    "learners": ("names", "solver"),
}
# Episodes are counted in 32 bits, and so are keys when JAX is used without float64.
_MOST_EPISODES = 2**31 - 1
_LARGEST_KEY = 2**32 - 1


@dataclasses.dataclass(frozen=True)
class Instance:
    """An instance that is yet to be built.

    Attributes:
      make: its registered name.
      label: what it is called in results; no two are equal.
      options: for `make`.
      where: gives file and line, for errors.
    """

    make: str
    label: str
    options: Table
    where: Callable[[], str] = dataclasses.field(default=str, compare=False, repr=False)

    def build(self, horizon: int) -> CMDP:
        """The CMDP.

        Args:
          horizon: T, for an instance that depends on it: one with an option `num_episodes` that
            the configuration leaves open.

        Raises:
          ValueError: if an option makes no sense, with the place in the configuration.
        """
        try:
            return make_for(self.make, horizon, **self.options)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.where()}instance {self.label!r}: {error}") from error


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Everything that decides a sweep; made by `read_configuration` or `from_dict`.

    Attributes:
      name: of the sweep.
      key: decides everything random.
      seeds: how many independent runs.
      streams: "paired", seed i of every cell plays with the same random streams, so that cells can
        be compared seed by seed; or "independent". See `paired_difference`.
      checkpoints: how often each run is looked at, at most the shortest horizon.
      instances: with labels that differ.
      horizon: numbers of episodes.
      rates: names, or pairs (C, eta).
      delta: confidence parameters.
      confidence_scale: what radii are multiplied by.
      learners: names, as `make_learner` takes them.
      solver: of the projection.

    Example:
      >>> small = {"make": "random", "sizes": [1, 3, 1]}
      >>> settings = {"horizon": [100, 200], "rates": ["tuned", [4, 0.01]]}
      >>> configuration = Configuration.from_dict({"instance": [small], "settings": settings})
      >>> configuration.horizon, configuration.rates_labels, configuration.checkpoints
      ((100, 200), ('tuned', 'C=4,eta=0.01'), 100)
      >>> Configuration.from_dict({"instance": [small], "settings": {"delt": 0.1}})
      Traceback (most recent call last):
      ValueError: unknown key 'delt' in [settings] (did you mean 'delta'?); its keys are horizon,
      rates, delta, confidence_scale.
    """

    name: str
    key: int
    seeds: int
    streams: str
    checkpoints: int
    instances: tuple[Instance, ...]
    horizon: tuple[int, ...]
    rates: tuple[Rates, ...]
    delta: tuple[float, ...]
    confidence_scale: tuple[float, ...]
    learners: tuple[str, ...]
    solver: str

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "Configuration":
        """From a dictionary of the shape of the file, such as `as_dict()`.

        Raises:
          ValueError: if something is unknown, of the wrong type, or contradicts something else.
        """
        return cls._from(table, lambda path: "")

    @classmethod
    def _from(cls, table: Mapping[str, Any], where: Callable[[KeyPath], str]) -> "Configuration":
        try:
            return cls(**_fields(table, where))
        except _WrongError as error:
            raise ValueError(where(error.path) + error.sentence) from None

    def as_dict(self) -> Table:
        """Everything, as plain as JSON; `from_dict` makes an equal one of it."""
        table: Table = {
            "name": self.name,
            "key": self.key,
            "seeds": self.seeds,
            "streams": self.streams,
            "checkpoints": self.checkpoints,
            "instance": [
                {"make": entry.make, "label": entry.label, **entry.options}
                for entry in self.instances
            ],
            "settings": {name: list(getattr(self, name)) for name in _KEYS["settings"]},
            "learners": {"names": list(self.learners), "solver": self.solver},
        }
        plain: Table = json.loads(json.dumps(table))
        return plain

    def with_streams(self, streams: str) -> "Configuration":
        """The same with other random streams, one of `STREAMS`."""
        try:
            checked = _one_of("stream", STREAMS)(("streams",), streams)
        except _WrongError as error:
            raise ValueError(error.sentence) from None
        return dataclasses.replace(self, streams=checked)

    @property
    def rates_labels(self) -> tuple[str, ...]:
        """The rates as text: "tuned", "C=4,eta=0.01"."""
        return tuple(_rates_label(rates) for rates in self.rates)


def builtin_names() -> tuple[str, ...]:
    """The configurations that come with the package."""
    files = (file.name for file in resources.files("pdgd_jax.sweeps").joinpath("configs").iterdir())
    return tuple(sorted(name.removesuffix(".toml") for name in files if name.endswith(".toml")))


def read_configuration(source: str | Path) -> Configuration:
    """Read a configuration from a TOML file, or one that comes with the package.

    Args:
      source: the path of a file, or one of `builtin_names()`.

    Raises:
      ValueError: if something is wrong: one sentence with file and line.

    Example:
      >>> read_configuration("quick").learners
      ('pdgd-ops', 'uniform')
    """
    if source in builtin_names():
        file = f"{source}.toml"
        content = resources.files("pdgd_jax.sweeps").joinpath("configs", file).read_bytes()
    else:
        file = str(source)
        try:
            content = Path(source).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise ValueError(
                f"there is no file {file!r}{nearest(file, builtin_names())}; the built-in "
                f"configurations are {', '.join(builtin_names())}."
            ) from None
        except (OSError, ValueError) as error:  # a folder, no permission, a NUL in the name
            reason = error.strerror if isinstance(error, OSError) else error
            raise ValueError(f"{file!r} cannot be read: {reason}.") from None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise ValueError(f"{file}, line {line}: this is not UTF-8 text.") from None
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ValueError(_syntax(file, text, str(error))) from None
    except RecursionError:
        raise ValueError(f"{file}: this is nested too deeply to be a configuration.") from None
    return Configuration._from(table, lambda path: f"{file}, line {_line_of(text, path)}: ")


# Places


class _WrongError(Exception):
    """What is wrong, and the key where it is."""

    def __init__(self, path: KeyPath, sentence: str) -> None:
        super().__init__(sentence)
        self.path = path
        self.sentence = sentence


def _syntax(file: str, text: str, message: str) -> str:
    """`Invalid value (at line 3, column 5)` as a sentence that begins with the place."""
    at = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", message)
    what = message[: at.start()] if at else message
    if at and at[1] and what == "Cannot overwrite a value":
        return f"{file}, line {at[1]}: this key is set already; a key is set once."
    if at and at[1]:
        return f"{file}, line {at[1]}: {what} at column {at[2]}; this is not TOML."
    return f"{file}, line {len(text.splitlines())}: {what} at the end; this is not TOML."


def _line_of(text: str, path: KeyPath) -> int:
    """The line on which a key, or else the table that it is missing from, begins.

    The first lines of the text that are TOML and hold the key end with it; it begins after the
    longest part of them that is TOML too.
    """
    lines = text.splitlines(keepends=True)
    whole = tomllib.loads(text)
    while path and not _holds(whole, path):
        path = path[:-1]
    if not path:
        return 1
    before = 0
    for end in range(1, len(lines) + 1):
        try:
            table = tomllib.loads("".join(lines[:end]))
        except tomllib.TOMLDecodeError:
            continue
        if _holds(table, path):
            break
        before = end
    return before + 1


def _holds(table: Any, path: KeyPath) -> bool:
    try:
        for key in path:
            table = table[key]
    except (KeyError, IndexError, TypeError):
        return False
    return True


# Checks


def _fields(table: Mapping[str, Any], where: Callable[[KeyPath], str]) -> Table:
    _check_keys("", table)
    settings = _table(table, "settings")
    learners = _table(table, "learners")

    def several(name: str, default: object, check: Callable[[KeyPath, object], T]) -> tuple[T, ...]:
        return _several(("settings", name), settings.get(name, default), check)

    horizon = several("horizon", 10_000, _whole(1, _MOST_EPISODES))
    fewest = min(horizon)
    checkpoints = _whole(1)(("checkpoints",), table.get("checkpoints", min(200, fewest)))
    if checkpoints > fewest:
        raise _WrongError(
            ("checkpoints",),
            f"checkpoints are at most as many as the shortest horizon has episodes, {fewest}; "
            f"got {checkpoints}.",
        )
    return {
        "name": _text(("name",), table.get("name", "sweep")),
        "key": _whole(0, _LARGEST_KEY)(("key",), table.get("key", 0)),
        "seeds": _whole(1)(("seeds",), table.get("seeds", 8)),
        "streams": _one_of("stream", STREAMS)(("streams",), table.get("streams", "paired")),
        "checkpoints": checkpoints,
        "instances": _instances(table.get("instance"), where),
        "horizon": horizon,
        "rates": several("rates", "tuned", _rates),
        "delta": several("delta", 0.05, _delta),
        "confidence_scale": several("confidence_scale", 1.0, _scale),
        "learners": _several(
            ("learners", "names"),
            learners.get("names", "pdgd-ops"),
            _one_of("learner", registered_learners()),
        ),
        "solver": _one_of("solver", SOLVERS)(
            ("learners", "solver"), learners.get("solver", "newton")
        ),
    }


def _instances(entries: object, where: Callable[[KeyPath], str]) -> tuple[Instance, ...]:
    if not isinstance(entries, Sequence) or not entries or isinstance(entries, str):
        raise _WrongError(
            ("instance",),
            'there is no instance to learn on; add one with [[instance]] and make = "random".',
        )
    found: list[Instance] = []
    wanted = [entry.get("label") for entry in entries if isinstance(entry, Mapping)]
    for index, entry in enumerate(entries):
        path: KeyPath = ("instance", index)
        if not isinstance(entry, Mapping):
            raise _WrongError(path, f"an instance is a table, [[instance]]; got {_show(entry)}.")
        if "make" not in entry:
            raise _WrongError(path, 'this instance does not say which; add make = "random".')
        name = _text((*path, "make"), entry["make"])
        with _at((*path, "make")):
            builder_of(name)
        options = {key: value for key, value in entry.items() if key not in ("make", "label")}
        for option, value in options.items():
            _check_plain((*path, option), value)
            with _at((*path, option)):
                check_value(name, option, value)
        if "label" in entry:
            label = _text((*path, "label"), entry["label"])
            if wanted.count(label) > 1:
                raise _WrongError(
                    (*path, "label"),
                    f"two instances have the label {label!r}; labels tell them apart.",
                )
        else:
            label, taken = name, {*wanted, *(other.label for other in found)}
            number = 2
            while label in taken:
                label, number = f"{name}-{number}", number + 1
        found.append(Instance(name, label, _listed(options), functools.partial(where, path)))
    return tuple(found)


def _table(table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = table.get(name, {})
    if not isinstance(inner, Mapping):
        raise _WrongError((name,), f"{name} is a table, [{name}]; got {_show(inner)}.")
    _check_keys(name, inner)
    return inner


def _check_keys(name: str, table: Mapping[str, Any]) -> None:
    known = _KEYS[name]
    for key in table:
        if key in known:
            continue
        homes = [f"in [{home}]" if home else "at the top" for home in _KEYS if key in _KEYS[home]]
        hint = f" (it belongs {homes[0]})" if homes else nearest(str(key), known)
        inside, keys = (f" in [{name}]", "its keys") if name else ("", "the keys")
        raise _WrongError(
            (name, key) if name else (key,),
            f"unknown key {key!r}{inside}{hint}; {keys} are {', '.join(known)}.",
        )


def _several(path: KeyPath, value: object, check: Callable[[KeyPath, object], T]) -> tuple[T, ...]:
    """A value, or a list of values that differ."""
    values = list(value) if isinstance(value, list | tuple) else [value]
    if path[-1] == "rates" and len(values) == 2 and all(map(is_number, values)):
        values = [values]  # one pair
    if not values:
        raise _WrongError(path, f"{path[-1]} lists nothing; give at least one value.")
    found: list[T] = []
    for entry in values:
        good = check(path, entry)
        if good in found:
            raise _WrongError(path, f"{path[-1]} lists {_show(entry)} twice.")
        found.append(good)
    return tuple(found)


def _whole(least: int, most: int | None = None) -> Callable[[KeyPath, object], int]:
    def check(path: KeyPath, value: object) -> int:
        with _at(path):
            return whole_number(
                str(path[-1]), value, least, most, accept=is_whole, shown=_show, grouping=""
            )

    return check


def _delta(path: KeyPath, value: object) -> float:
    if not is_number(value) or not 0 < value < 1:
        raise _WrongError(
            path, f"delta must be a number strictly between 0 and 1; got {_show(value)}."
        )
    return float(value)


def _scale(path: KeyPath, value: object) -> float:
    if not is_number(value) or not math.isfinite(value) or value < 0:
        raise _WrongError(
            path, f"confidence_scale must be a finite number, at least 0; got {_show(value)}."
        )
    return float(value)


def _rates(path: KeyPath, value: object) -> Rates:
    if isinstance(value, str) and value in RATES:
        return value
    if (
        isinstance(value, list | tuple)
        and len(value) == 2
        and all(is_number(entry) and math.isfinite(entry) and entry > 0 for entry in value)
    ):
        return float(value[0]), float(value[1])
    hint = nearest(value, RATES) if isinstance(value, str) else ""
    raise _WrongError(
        path,
        f'rates must be "theory", "tuned" or a pair [C, eta] of positive numbers; '
        f"got {_show(value)}{hint}.",
    )


def _one_of(what: str, known: Collection[str]) -> Callable[[KeyPath, object], str]:
    def check(path: KeyPath, value: object) -> str:
        if not isinstance(value, str) or value not in known:
            hint = nearest(value, known) if isinstance(value, str) else ""
            raise _WrongError(
                path, f"unknown {what} {_show(value)}{hint}; the {what}s are {', '.join(known)}."
            )
        return value

    return check


def _text(path: KeyPath, value: object) -> str:
    if not isinstance(value, str) or not value or not value.isprintable():
        raise _WrongError(
            path, f"{path[-1]} must be text on one line, not empty; got {_show(value)}."
        )
    return value


def _check_plain(path: KeyPath, value: object) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        raise _WrongError(
            path, f"{path[-1]} must be finite numbers, text, or true or false; got {_show(value)}."
        ) from None


@contextlib.contextmanager
def _at(path: KeyPath) -> Iterator[None]:
    """Say where an error of the inner code comes from."""
    try:
        yield
    except ValueError as error:
        raise _WrongError(path, str(error)) from None


def _listed(options: Table) -> Table:
    """Options as they come back from JSON, so that equal configurations are equal."""
    plain: Table = json.loads(json.dumps(options))
    return plain


def _rates_label(rates: Rates) -> str:
    if isinstance(rates, str):
        return rates
    primal, dual = (repr(constant).removesuffix(".0") for constant in rates)
    return f"C={primal},eta={dual}"


def _show(value: object) -> str:
    """A value as it stands in the file, cut if it is long."""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."
