"""Errors about the folder of a sweep, each one sentence."""

from pdgd_jax._internal.files import WriteError

__all__ = ["StoreError", "WriteError"]


class StoreError(ValueError):
    """A problem with a folder that the user has to resolve: one sentence."""
