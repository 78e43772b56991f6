"""The keys of a configuration, with their defaults and checks."""

import functools
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pdgd_jax._internal.checks import LARGEST_KEY, MOST_EPISODES
from pdgd_jax._internal.registry import nearest
from pdgd_jax._internal.typing import Table
from pdgd_jax.instances import builder_of, check_value
from pdgd_jax.learners import check_option, option_value, registered_learners
from pdgd_jax.projection import SOLVERS
from pdgd_jax.sweeps._checks import (
    WrongError,
    at,
    check_plain,
    delta,
    one_of,
    rates,
    scale,
    several,
    show,
    text_of,
    whole,
)
from pdgd_jax.sweeps._instance import Instance
from pdgd_jax.sweeps._option import Option
from pdgd_jax.sweeps._toml import KeyPath

__all__ = ["KEYS", "STREAMS", "fields_of"]

T = TypeVar("T")

# Learners ignore the options of others, but results are repeated along them.
_MOST_COMBINATIONS = 1_000

STREAMS = ("paired", "independent")
KEYS = {
    "": ("name", "key", "seeds", "streams", "checkpoints", "instance", "settings", "learners"),
    "settings": ("horizon", "rates", "delta", "confidence_scale"),
    "learners": ("names", "solver"),
}


def fields_of(table: Mapping[str, Any], where: Callable[[KeyPath], str]) -> Table:
    """The fields of a `Configuration`, checked.

    Args:
      table: the configuration as a dictionary.
      where: returns file and line of a key, for errors.

    Raises:
      WrongError: if something is unknown, of the wrong type, or contradicts something else.
    """
    _check_keys("", table)
    settings = _table(table, "settings")
    learners, options = _learners_and_options(table)

    def settings_of(
        name: str, default: object, check: Callable[[KeyPath, object], T]
    ) -> tuple[T, ...]:
        return several(("settings", name), settings.get(name, default), check)

    horizon = settings_of("horizon", 10_000, whole(1, MOST_EPISODES))
    fewest = min(horizon)
    checkpoints = whole(1)(("checkpoints",), table.get("checkpoints", min(200, fewest)))
    if checkpoints > fewest:
        raise WrongError(
            ("checkpoints",),
            f"checkpoints are at most as many as the shortest horizon has episodes, {fewest}; "
            f"got {checkpoints}.",
        )
    names = several(
        ("learners", "names"),
        learners.get("names", "pdgd-ops"),
        one_of("learner", registered_learners()),
    )
    return {
        "name": text_of(("name",), table.get("name", "sweep")),
        "key": whole(0, LARGEST_KEY)(("key",), table.get("key", 0)),
        "seeds": whole(1)(("seeds",), table.get("seeds", 8)),
        "streams": one_of("stream", STREAMS)(("streams",), table.get("streams", "paired")),
        "checkpoints": checkpoints,
        "instances": _instances(table.get("instance"), where),
        "horizon": horizon,
        "rates": settings_of("rates", "tuned", rates),
        "delta": settings_of("delta", 0.05, delta),
        "confidence_scale": settings_of("confidence_scale", 1.0, scale),
        "learners": names,
        "options": _options(options, names, where),
        "solver": one_of("solver", SOLVERS)(
            ("learners", "solver"), learners.get("solver", "newton")
        ),
    }


def _learners_and_options(table: Mapping[str, Any]) -> tuple[Table, dict[str, Mapping[str, Any]]]:
    """The keys of [learners], and its tables [learners.NAME]."""
    inner = table.get("learners", {})
    if not isinstance(inner, Mapping):
        raise WrongError(("learners",), f"learners is a table, [learners]; got {show(inner)}.")
    tables = {
        str(key): value
        for key, value in inner.items()
        if isinstance(value, Mapping) and key not in KEYS["learners"]
    }
    keys = {key: value for key, value in inner.items() if key not in tables}
    _check_keys("learners", keys)
    return keys, tables


def _options(
    tables: Mapping[str, Mapping[str, Any]],
    names: Sequence[str],
    where: Callable[[KeyPath], str],
) -> tuple[Option, ...]:
    """The options of learners, in the order of the learners and of their tables."""
    for learner in tables:
        path: KeyPath = ("learners", learner)
        if learner not in names:
            one_of("learner", registered_learners())(path, learner)
            raise WrongError(
                path,
                f"learner {learner!r} has options but is not played; add it to names, which are "
                f"{', '.join(names)}.",
            )
        if tables[learner] and not re.fullmatch(r"\w[\w.-]*", learner):
            raise WrongError(
                path,
                f"options name dimensions of the results, so that the name of their learner has "
                f"letters, digits, dots, - and _ only; got {learner!r}.",
            )
    found: list[Option] = []
    for learner in names:
        for name, value in tables.get(learner, {}).items():
            path = ("learners", learner, name)

            def check(path: KeyPath, value: object) -> Any:
                check_plain(path, value)
                with at(path):
                    return option_value(str(path[-2]), str(path[-1]), value)

            with at(path):
                check_option(learner, name)
            values = several(path, value, check)
            found.append(Option(learner, name, values, functools.partial(where, path)))
    combinations = math.prod(len(option.values) for option in found)
    if combinations > _MOST_COMBINATIONS and len({option.learner for option in found}) > 1:
        raise WrongError(
            ("learners",),
            f"options of different learners multiply in the results, here to {combinations:,} "
            f"combinations, at most {_MOST_COMBINATIONS:,} are held; sweep over the options of "
            "one learner at a time.",
        )
    return tuple(found)


def _instances(entries: object, where: Callable[[KeyPath], str]) -> tuple[Instance, ...]:
    if not isinstance(entries, Sequence) or not entries or isinstance(entries, str):
        raise WrongError(
            ("instance",),
            'there is no instance to learn on; add one with [[instance]] and make = "random".',
        )
    found: list[Instance] = []
    wanted = [entry.get("label") for entry in entries if isinstance(entry, Mapping)]
    for index, entry in enumerate(entries):
        path: KeyPath = ("instance", index)
        if not isinstance(entry, Mapping):
            raise WrongError(path, f"an instance is a table, [[instance]]; got {show(entry)}.")
        if "make" not in entry:
            raise WrongError(path, 'this instance does not say which; add make = "random".')
        name = text_of((*path, "make"), entry["make"])
        with at((*path, "make")):
            builder_of(name)
        options = {key: value for key, value in entry.items() if key not in ("make", "label")}
        for option, value in options.items():
            check_plain((*path, option), value)
            with at((*path, option)):
                check_value(name, option, value)
        if "label" in entry:
            label = text_of((*path, "label"), entry["label"])
            if wanted.count(label) > 1:
                raise WrongError(
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
        raise WrongError((name,), f"{name} is a table, [{name}]; got {show(inner)}.")
    _check_keys(name, inner)
    return inner


def _check_keys(name: str, table: Mapping[str, Any]) -> None:
    known = KEYS[name]
    for key in table:
        if key in known:
            continue
        homes = [f"in [{home}]" if home else "at the top" for home in KEYS if key in KEYS[home]]
        hint = f" (it belongs {homes[0]})" if homes else nearest(str(key), known)
        inside, keys = (f" in [{name}]", "its keys") if name else ("", "the keys")
        raise WrongError(
            (name, key) if name else (key,),
            f"unknown key {key!r}{inside}{hint}; {keys} are {', '.join(known)}.",
        )


def _listed(options: Table) -> Table:
    """Options after a round trip through JSON, so that equal configurations compare equal."""
    plain: Table = json.loads(json.dumps(options))
    return plain
