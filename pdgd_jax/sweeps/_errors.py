"""What can go wrong with the folder of a sweep, each in one sentence."""

from pdgd_jax._internal.files import WriteError

__all__ = ["StoreError", "WriteError"]


class StoreError(ValueError):
    """Something about a store that its user has to decide: one sentence."""
