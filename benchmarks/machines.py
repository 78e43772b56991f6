"""What episodes and compilations took on machines where `scaling.py --fit` was run.

The constants of `pdgd_jax/sweeps/_costs.py` are those that come closest to all of them; a machine
of yours is one more entry. A row says what was played, (L, S, A), lanes at once, m, seconds of CPU
for an episode of all lanes, and seconds to compile, or None; in float64, on one core.
"""

MACHINES = {
    "AMD EPYC, a quiet machine": {
        # By `pdgd run NAME --seeds 1` and `episodes.py`; the learner "uniform" by `--fit`.
        "NEWTON": [
            ("random, one lane", (4, 4, 3), 1, 1, 52.3e-6, 8.6),
            ("random, a block of 256 lanes", (4, 4, 3), 64, 1, 64 / 70_000, 10.9),
            ("random, four layers of 10 states", (5, 10, 5), 32, 1, 32 / 5_250, None),
            ("CliffWalking-v1, horizon 20", (20, 38, 4), 1, 1, 22.9e-3, 18),
            ("FrozenLake8x8-v1, horizon 30", (30, 54, 4), 1, 1, 71.5e-3, 28),
            ("random, nine layers of 64 states", (10, 64, 4), 1, 1, 45e-3, 22),
            ("random, nine layers of 100 states", (10, 100, 4), 1, 1, 412e-3, 26),
        ],
        "FIXED": [
            ("random, one lane", (4, 4, 3), 1, 1, 16.3e-6, 3.6),
            ("random, 16 lanes", (4, 4, 3), 16, 1, 16 * 3.6e-6, 4.7),
            ("random, 64 constraints", (4, 4, 3), 16, 64, 16 * 31.6e-6, 5.3),
            ("random, four layers of 32 states", (5, 32, 4), 4, 1, 4 * 24.1e-6, 3.5),
            ("random, nine layers of 100 states", (10, 100, 4), 1, 1, 625.8e-6, 4.2),
        ],
    },
    "Intel Xeon, 2.8 GHz, with work on its other core": {
        # Compilations only where they had the machine to themselves.
        "NEWTON": [
            ("random, one lane", (4, 4, 3), 1, 1, 60.2e-6, 15.9),
            ("random, 16 lanes", (4, 4, 3), 16, 1, 451.0e-6, 26.0),
            ("random, 64 lanes", (4, 4, 3), 64, 1, 2406.1e-6, None),
            ("random, 16 constraints", (4, 4, 3), 16, 16, 819.0e-6, None),
            ("random, four layers of 10 states, one lane", (5, 10, 5), 1, 1, 469.0e-6, None),
            ("random, four layers of 10 states", (5, 10, 5), 16, 1, 7405.6e-6, 33.6),
            ("random, four layers of 32 states", (5, 32, 4), 1, 1, 7222.5e-6, None),
            ("random, 19 layers of 32 states", (20, 32, 4), 1, 1, 44925.7e-6, None),
            ("random, nine layers of 64 states", (10, 64, 4), 1, 1, 171077.4e-6, None),
            ("random, three layers of 100 states", (4, 100, 4), 1, 1, 181856.7e-6, None),
            ("random, nine layers of 100 states", (10, 100, 4), 1, 1, 1383503.3e-6, None),
        ],
        "FIXED": [
            ("random, one lane", (4, 4, 3), 1, 1, 15.6e-6, 4.7),
            ("random, 16 lanes", (4, 4, 3), 16, 1, 70.2e-6, 6.4),
            ("random, 64 constraints", (4, 4, 3), 16, 64, 725.8e-6, 6.5),
            ("random, four layers of 32 states", (5, 32, 4), 4, 1, 148.9e-6, 5.4),
            ("random, nine layers of 100 states", (10, 100, 4), 1, 1, 711.5e-6, 5.2),
        ],
    },
}


def rows_of(name):
    """Those of all machines for the constants of that name, without what was played."""
    return [row[1:] for machine in MACHINES.values() for row in machine[name]]
