"""A vectorised JAX simulator of PDGD-OPS, for constrained MDPs with long-term constraints.

The most used names of every room are available here; `__init__.pyi` is the only list of them. Each
is imported on first access, so that the command line reacts to Ctrl-C before JAX is loaded.
"""

import sys

import lazy_loader

from pdgd_jax._version import __version__ as __version__

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name not in __all__:  # the wording to which Python appends a suggestion
        raise AttributeError(
            f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__]
        )
    return _load(name)
