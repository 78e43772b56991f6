"""A vectorised JAX simulator of PDGD-OPS, for constrained MDPs with long-term constraints.

The most used names of all rooms can be had from here; `__init__.pyi` is their only list. They are
imported when first asked for, so that the command line listens to Ctrl-C before JAX is loaded.
"""

import lazy_loader

from pdgd_jax._version import __version__ as __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
