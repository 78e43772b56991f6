"""A Dataset as `sweep` returns it, made up without playing an episode: for figures and reports."""

import json
import re

import numpy as np
import xarray

# (certificate, theorem, share of its bound that is reached, bound as a function of T)
CERTIFICATES = (
    ("projections converged", "by construction", 0.0, lambda T: 0.0),
    ("multipliers in their box", "by construction", 0.3, lambda T: T**0.25),
    ("regret, by the largest multiplier", "Theorem 5, regret", 0.02, lambda T: 300 * T**0.5),
    ("regret, Theorem 6", "Theorem 6, regret", 0.002, lambda T: 600 * T**0.75),
    ("violation, by the last multiplier", "Lemmas 14 and 15", 0.7, lambda T: 9 * T**0.5),
    ("violation, Theorem 6", "Theorem 6, violation", 1.2, lambda T: 600 * T**0.75),
)
# A learner without rates is played once, and repeated.
SETTINGLESS = ("uniform", "best-feasible")


def results(
    *,
    instance=("random",),
    learner=("pdgd-ops",),
    rates=("tuned",),
    delta=(0.05,),
    confidence_scale=(1.0,),
    options=None,
    horizon=(1000,),
    seeds=5,
    checkpoints=20,
    constraints=2,
    unconverged=0,
    shape=(3, 3, 2),
):
    """Regret grows as `2 sqrt(t)`, violation as `t^(3/4)`, each with a spread over the seeds.

    Options of learners are given as `{"ucpd.V": (10.0, 100.0)}`.
    """
    options = options or {}
    coordinates = {
        "instance": list(instance),
        "learner": list(learner),
        "rates": list(rates),
        "delta": list(delta),
        "confidence_scale": list(confidence_scale),
        **{dim: list(values) for dim, values in options.items()},
        "horizon": list(horizon),
        "seed": np.arange(seeds),
    }
    lead = tuple(coordinates)
    lengths = tuple(len(values) for values in coordinates.values())
    K, m = checkpoints, constraints
    steps = np.arange(1, K + 1)
    episode = np.array([[k * T // K for k in steps] for T in horizon])  # [horizon, K]
    index = np.meshgrid(*[np.arange(n) for n in lengths], indexing="ij")
    place = dict(zip(lead, index, strict=True))
    named = np.array(learner)[place["learner"]]
    heeds = ~np.isin(named, SETTINGLESS)
    size = 1.0 + 0.5 * place["instance"] + 0.7 * place["learner"]
    for name in ("rates", "delta", "confidence_scale"):
        size = size + heeds * 0.4 * place[name]
    for dim in options:
        size = size + (named == dim.partition(".")[0]) * 0.3 * place[dim]
    spread = 1 + 0.2 * (place["seed"] - (seeds - 1) / 2) / max(seeds - 1, 1)
    size = (size * spread)[..., None]  # [..., 1]
    t = episode[:, None, :].astype(float)  # [horizon, seed, K]
    opt = np.broadcast_to(1.5, (*lengths, K))
    regret = 2 * size * np.sqrt(t)
    each = np.stack([size * t**0.75 / (i + 1) - 3 * i for i in range(m)], -1)
    multipliers = np.stack([size * (1 - np.exp(-t / 300)) / (i + 1) for i in range(m)], -1)
    iterations = np.where(heeds[..., None], 4 * t + np.sqrt(t), 0)
    residual = np.where(heeds[..., None], 1e-10 * np.sqrt(t), 0)
    stuck = np.where(heeds[..., None], np.floor(unconverged * t / t[..., -1:]), 0).astype(int)
    after = {
        "reward": (1.5 * t - regret, "cumulative reward", "reward"),
        "sampled_reward": (1.5 * t - regret + 1, "cumulative sampled reward", "reward"),
        "opt": (opt, "optimum of the prefix", "reward per episode"),
        "regret": (regret, "cumulative regret", "reward"),
        "alpha_regret": (regret - t, "cumulative alpha-regret", "reward"),
        "violation": (each.max(-1), "violation of the worst constraint", "cost"),
        "model_error": (size * np.sqrt(t) + 0 * t, "model error", "probability"),
        "radius": (np.minimum(2, 20 * size / np.sqrt(t)), "mean confidence radius", "probability"),
        "epoch": (np.broadcast_to(np.log2(t), each.shape[:-1]).astype(int), "epoch", "epochs"),
        "residual": (residual * np.ones_like(size), "largest residual", "probability"),
        "iterations": (iterations * np.ones_like(size), "iterations", "iterations"),
        "most_iterations": (iterations * 0 + 9, "most iterations", "iterations"),
        "unconverged": (stuck * np.ones_like(size, int), "unconverged", "projections"),
        "covered": (np.ones((*lengths, K), bool), "transitions covered", ""),
    }
    variables = {
        name: ((*lead, "checkpoint"), values, {"long_name": long_name, "units": units})
        for name, (values, long_name, units) in after.items()
    }
    for name, values, units in (
        ("violations", each, "cost"),
        ("positive_violation", np.maximum(each, 0) * 1.1, "cost"),
        ("multipliers", multipliers, "reward per cost"),
    ):
        attributes = {"long_name": name.replace("_", " "), "units": units}
        variables[name] = ((*lead, "checkpoint", "constraint"), values, attributes)
    variables["episode"] = (
        ("horizon", "checkpoint"),
        episode,
        {"long_name": "episodes played", "units": "episodes"},
    )
    variables |= _certificates(lead, lengths, np.array(horizon)[place["horizon"]], heeds)
    L, S, A = shape
    policy = np.full((*lengths, L, S, A), 1 / A)
    policy[..., 0, 1:, :] = np.nan  # the first layer has a single state
    about = {"long_name": "last policy", "units": "probability"}
    variables["policy"] = ((*lead, "layer", "state", "action"), policy, about)
    for name, value in (("rho", 0.5), ("alpha", 0.2)):
        variables[name] = (lead, np.full(lengths, value), {"long_name": name, "units": ""})
    attributes = _attributes(coordinates, options)
    coordinates["certificate"] = [name for name, *_ in CERTIFICATES]
    coordinates["theorem"] = ("certificate", [theorem for _, theorem, *_ in CERTIFICATES])
    abouts = [re.match("regret|violation|multipliers|", name)[0] for name, *_ in CERTIFICATES]
    coordinates["about"] = ("certificate", abouts)
    coordinates["setting"] = ["rates", "delta", "confidence_scale", *options]
    own = [[dim.partition(".")[0] == name for dim in options] for name in learner]
    uses = [[name not in SETTINGLESS] * 3 + mine for name, mine in zip(learner, own, strict=True)]
    coordinates["uses_setting"] = (("learner", "setting"), uses)
    return xarray.Dataset(variables, coordinates, attributes)


def _certificates(lead, lengths, T, heeds):
    bound = np.stack([of(T.astype(float)) + 0 * T for *_, of in CERTIFICATES], -1)
    bound = np.where(heeds[..., None], bound, np.nan)
    share = np.array([share for _, _, share, _ in CERTIFICATES])
    measured = bound * share
    reason = np.where(heeds[..., None], "", "the learner makes no such promise")
    reason = np.broadcast_to(reason, bound.shape)
    judged = np.where(measured <= bound, "holds", "fails")
    status = np.where(reason == "", judged, "does not apply")
    dims = (*lead, "certificate")
    return {
        "certificate_measured": (dims, measured, {"long_name": "measured", "units": ""}),
        "certificate_bound": (dims, bound, {"long_name": "bound", "units": ""}),
        "certificate_status": (dims, status, {"long_name": "status", "units": ""}),
        "certificate_reason": (dims, reason, {"long_name": "reason", "units": ""}),
    }


def _attributes(coordinates, options):
    instances = [
        {"make": "random", "label": label, "sizes": [1, 3, 3, 1], "num_actions": 2}
        for label in coordinates["instance"]
    ]
    settings = {
        name: list(coordinates[name]) for name in ("horizon", "rates", "delta", "confidence_scale")
    }
    learners = {"names": list(coordinates["learner"]), "solver": "newton"}
    for dim, values in options.items():
        name, _, option = dim.partition(".")
        learners.setdefault(name, {})[option] = list(values)
    configuration = {
        "name": "made up",
        "key": 7,
        "seeds": len(coordinates["seed"]),
        "checkpoints": 20,
        "instance": instances,
        "settings": settings,
        "learners": learners,
    }
    return {
        "configuration": json.dumps(configuration),
        "versions": json.dumps({"pdgd_jax": "0.1.0", "jax": "0.10.0"}),
        "key": 7,
        "created": "2026-01-01T00:00:00+00:00",
    }
