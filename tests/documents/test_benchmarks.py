"""The benchmarks that README and `docs/benchmarks.md` quote: with `--quick`, all of each runs."""

import re

import pytest

from tests.documents.test_readme import BENCHMARKS, ROOT, shell

# What they quote from each benchmark, as the benchmark names it.
QUOTED = {
    "rates": (
        "slater, rho =",
        "no slater, rho =",
        "adversarial, rho =",
        "reward / OPT, worst seed",
        "P covered",
        "multiplier, theory",
        "T needed",
    ),
    "episodes": (
        "small: sizes",
        "large: sizes",
        "NumPy loop with OSQP, 1e-6",
        "pdgd_jax, 1e-9",
        "uc-o-reps, 1e-9",
        "ucpd, 1e-9",
        "if OSQP's programs of new epochs came built and factorised",
        "all but the projection",
        "compile time",
        "resident memory",
    ),
    "projection": (
        "| small | newton 1e-9, 1 lanes |",
        "| small | newton 1e-9, 256 lanes |",
        "| small | newton float32 1e-6, 256 lanes |",
        "| small | newton without fences, 256 lanes |",
        "| large | newton 1e-9, 1 lanes |",
        "| large | newton 1e-9, 32 lanes |",
        "| large | newton float32 1e-6, 32 lanes |",
        *(
            f"| {size} | {peer} |"
            for size in ("small", "large")
            for peer in (
                "OSQP (C), warm, 1e-6",
                "PIQP, cold, 1e-8",
                "CVXPY + OSQP, 1e-6",
                "Clarabel, cold, 1e-11",
                "jaxopt BoxOSQP, polished, 1e-6, 4 lanes",
                "jaxopt BoxOSQP alone, 1e-6, 4 lanes",
                "jaxopt ProjectedGradient, polished, 1e-6, 4 lanes",
                "jaxopt ProjectedGradient alone, 1e-6, 4 lanes",
            )
        ),
        "| 5 to 10 | 1 |",
        *(
            f"| small | {solver} |"
            for solver in (
                "entropic, 1 lanes",
                "entropic, 256 lanes",
                "entropic float32, 256 lanes",
                "Euclidean (newton), 256 lanes",
                "L-BFGS-B on the dual, warm",
                "Clarabel, cold, 1e-11",
                "CVXPY + Clarabel",
                "CVXPY + SCS, 1e-5",
            )
        ),
    ),
    "chain": (
        "known transitions: 40 projections, 0 unconverged",
        "differs from one projection of all losses by",
        "balls of radius 0.2: 40 projections, 0 unconverged",
    ),
    "planning": (
        *(f"| {size}, m = {m}, " for size, m in (("small", 1), ("small", 4), ("large", 1))),
        *(f"| {size}, m = {m}, L1 balls" for size, m in (("small", 1), ("small", 4), ("large", 4))),
    ),
    "instances": (
        "| CliffWalking, horizon 20 | support known |",
        "| CliffWalking, horizon 20 | dense |",
        "of the time of dense (rounds from",
        "too many to be played",
        "Taxi, horizon 10: peak MiB",
        "Taxi, horizon 10: compile s",
        "| dense random S = 100, L = 10, A = 4 | dense |",
        "| sparse random S = 4, K = 1 | support known |",
        *(f"Newton step ~ {name}^" for name in "SK"),
        "0 projections did not converge",
    ),
    "scaling": (
        "lanes (",
        "1, pinned to a core",
        "by CPU time, which other work",
        *(f"CPU time per episode ~ {name}^" for name in "SALm"),
        "peak memory ~ T^",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", BENCHMARKS)
def test_benchmarks_that_numbers_are_quoted_from(command):
    printed = shell(f"{command} --quick", ROOT)
    assert "the numbers mean nothing" in printed
    name = re.search(r"benchmarks/(\w+)\.py", command)[1]
    assert [row for row in QUOTED[name] if row not in printed] == []
