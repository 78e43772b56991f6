"""The command line `pdgd`, one file per command. Loaded by `pdgd_jax.__main__`."""
