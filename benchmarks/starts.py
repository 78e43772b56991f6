"""The projection from any start, judged in double precision: `python benchmarks/starts.py`.

Draws random problems as the tests do, with targets of up to ten (`--largest`), each with a start of
some kind: none, the solution for another target or for other layers of the same shape, random
numbers, huge ones, NaN and infinities. What `project` returns is judged on the host, in float64,
as `tests/reference/starts.py` says. `--problems 1000000` takes most of an hour.
"""

import argparse
import sys
import time
from pathlib import Path

import jax
import numpy as np
from quick import add_quick, hurry

sys.path.insert(0, str(Path(__file__).parent.parent))
from tests.reference.starts import SHAPES, STARTS, Verdict, judge_starts

# Of a hundred problems; the larger ones are drawn and solved more slowly.
PERCENT = (94, 3, 2, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=20_000)
    parser.add_argument("--largest", type=float, default=10.0, help="of the targets")
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shape", nargs=3, type=int, help="layers, states, actions; else several")
    add_quick(parser)
    arguments = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    if arguments.quick:
        hurry()
    for row in rows(arguments):
        print(row, flush=True)


def rows(arguments):
    """The table, row by row, as soon as a shape is done."""
    columns = ["layers, states, actions", "start", "problems", "not converged", "wrong"]
    columns += ["converged and wrong", "reference unknown", "largest distance", "most steps"]
    yield "|".join(["", *columns, ""]) + "\n" + "|---" * len(columns) + "|"
    begin, all_verdicts = time.perf_counter(), []
    shares = dict(zip(SHAPES, PERCENT, strict=True))
    if arguments.quick or arguments.shape:
        shares = {tuple(arguments.shape or SHAPES[0]): 100}
    for shape, percent in shares.items():
        rng = np.random.default_rng([arguments.seed, *shape])
        count = 8 if arguments.quick else -(-arguments.problems * percent // 100)
        lanes = min(count, 2048 if percent > 1 else 512)
        verdict = judge_starts(
            rng, shape, count, arguments.largest, np.dtype(arguments.dtype), lanes
        )
        all_verdicts.append(verdict)
        for j, start in enumerate(STARTS):
            yield row(", ".join(map(str, shape)), start, verdict, verdict.start == j)
    verdict = Verdict(*(np.concatenate(x) for x in zip(*all_verdicts, strict=True)))
    yield row("all", "all", verdict, np.full(len(verdict.start), True))
    yield f"\n{time.perf_counter() - begin:.0f} s"


def row(shape, start, verdict, lanes):
    if not lanes.any():
        return f"| {shape} | {start} | 0 | | | | | | |"
    converged, wrong = verdict.converged[lanes], verdict.wrong[lanes]
    distance = verdict.distance[lanes]
    trusted = np.where(converged & np.isfinite(distance), distance, 0)
    return (
        f"| {shape} | {start} | {lanes.sum()} | {(~converged).sum()} | {wrong.sum()} "
        f"| {(converged & wrong).sum()} | {np.isnan(distance).sum()} | {trusted.max():.1e} "
        f"| {verdict.steps[lanes].max()} |"
    )


if __name__ == "__main__":
    main()
