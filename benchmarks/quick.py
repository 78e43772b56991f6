"""`--quick` of every benchmark: each part runs once, and the numbers mean nothing."""

import os

import jax

NOTE = "--quick: as little as goes through every part; the numbers mean nothing."


def add_quick(parser):
    parser.add_argument("--quick", action="store_true", help="only to see that everything works")


def hurry():
    """Say what the numbers are worth, and compile in a hurry: here, and in processes to come."""
    print(NOTE, flush=True)
    jax.config.update("jax_disable_most_optimizations", True)
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
