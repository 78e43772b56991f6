"""The command line, `pdgd`: one file for each command. Loaded by `pdgd_jax.__main__`."""
