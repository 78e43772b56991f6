"""The configuration of a sweep, as a TOML file or a dictionary of the same shape.

```toml
name = "example"             # all keys are optional, except [[instance]] and its make
key = 0                      # determines everything random
seeds = 8
streams = "paired"           # or "independent": see `paired_difference`
checkpoints = 50             # by default 200, or the shortest horizon if that is less

[[instance]]                 # one or more
make = "random"              # a registered name; further keys are options of the instance
label = "small"              # its name in figures; by default the registered name
sizes = [1, 3, 3, 1]

[settings]                   # each a value or a list of values
horizon = [1000, 3000]
rates = ["tuned", "theory", [4.0, 0.01]]
delta = 0.05
confidence_scale = [1.0, 0.3]

[learners]
names = ["pdgd-ops", "ucpd"]
solver = "newton"

[learners.ucpd]              # options of one learner, each a value or a list of values
V = ["default", 10, 100]     # a dimension "ucpd.V" of the results, which other learners ignore
```

`read_configuration` reads a file or a built-in configuration, `Configuration.from_dict` a
dictionary. Both make the same checks. An error is one sentence that begins with file and line.
Names and labels never become file names.
"""

import dataclasses
import json
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from pdgd_jax._internal.registry import nearest
from pdgd_jax._internal.typing import Table
from pdgd_jax.sweeps._checks import Rates, WrongError, one_of
from pdgd_jax.sweeps._instance import Instance
from pdgd_jax.sweeps._option import Option
from pdgd_jax.sweeps._schema import KEYS, STREAMS, fields_of
from pdgd_jax.sweeps._toml import KeyPath, line_of, syntax_sentence

__all__ = ["STREAMS", "Configuration", "Instance", "builtin_names", "read_configuration"]


@dataclasses.dataclass(frozen=True)
class Configuration:
    """Everything that determines a sweep; made by `read_configuration` or `from_dict`.

    Attributes:
      name: the name of the sweep.
      key: determines everything random.
      seeds: the number of independent runs.
      streams: "paired" if seed i of every cell plays with the same random streams, so that cells
        can be compared seed by seed; or "independent". See `paired_difference`.
      checkpoints: the number of checkpoints of each run, at most the shortest horizon.
      instances: the instances, with different labels.
      horizon: numbers of episodes.
      rates: names, or pairs (C, eta).
      delta: confidence parameters.
      confidence_scale: factors of the radii.
      learners: names of learners, as in `make_learner`.
      solver: the solver of the projection.
      options: options of single learners; see `pdgd learners NAME`.

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
    options: tuple[Option, ...] = ()

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> "Configuration":
        """Build a configuration from a dictionary of the shape of the file, such as `as_dict()`.

        Raises:
          ValueError: if something is unknown, of the wrong type, or contradicts something else.
        """
        return cls._from(table, lambda path: "")

    @classmethod
    def _from(cls, table: Mapping[str, Any], where: Callable[[KeyPath], str]) -> "Configuration":
        try:
            return cls(**fields_of(table, where))
        except WrongError as error:
            raise ValueError(where(error.path) + error.sentence) from None

    def as_dict(self) -> Table:
        """The configuration as JSON data; `from_dict` turns it into an equal configuration."""
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
            "settings": {name: list(getattr(self, name)) for name in KEYS["settings"]},
            "learners": {
                "names": list(self.learners),
                "solver": self.solver,
                **{
                    learner: {
                        option.name: list(option.values)
                        for option in self.options
                        if option.learner == learner
                    }
                    for learner in dict.fromkeys(option.learner for option in self.options)
                },
            },
        }
        plain: Table = json.loads(json.dumps(table))
        return plain

    def with_streams(self, streams: str) -> "Configuration":
        """The same configuration with other random streams, one of `STREAMS`."""
        try:
            checked = one_of("stream", STREAMS)(("streams",), streams)
        except WrongError as error:
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
      ValueError: if something is wrong; one sentence with file and line.

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
        raise ValueError(syntax_sentence(file, text, str(error))) from None
    except RecursionError:
        raise ValueError(f"{file}: this is nested too deeply to be a configuration.") from None
    return Configuration._from(table, lambda path: f"{file}, line {line_of(text, path)}: ")


def _rates_label(rates: Rates) -> str:
    if isinstance(rates, str):
        return rates
    primal, dual = (repr(constant).removesuffix(".0") for constant in rates)
    return f"C={primal},eta={dual}"
