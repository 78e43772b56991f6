import json

import jax
import numpy as np
import pytest

from pdgd_jax import dataset_of, evaluate, learners, make, pdgd_ops, run
from pdgd_jax.results import QUANTITIES, Status, Subject
from tests.quick import QUICK


@pytest.fixture(scope="module")
def runs():
    """Three seeds of two settings, [2, 3, ...], on an instance inside a larger padded shape."""
    cmdp = make("random", sizes=(1, 3, 1), num_actions=2, num_constraints=2).pad_to((2, 4, 2))
    keys = jax.random.split(jax.random.key(0), 3)

    def one(scale, key):
        learner = pdgd_ops(cmdp.layers, 2, 40, confidence_scale=scale, solver=QUICK)
        return run(key, cmdp, learner, 40, checkpoints=4)

    over_seeds = jax.vmap(one, (None, 0))
    history = jax.vmap(over_seeds, (0, None))(jax.numpy.array([1.0, 0.3]), keys)
    return cmdp, history, evaluate(history, cmdp)


def test_every_number_is_there_under_its_name(runs):
    _, history, result = runs
    data = dataset_of(history, result, dims=("confidence_scale", "seed"))
    assert set(data.data_vars) == set(QUANTITIES)
    assert data.sizes["confidence_scale"] == 2
    assert data.sizes["seed"] == 3
    np.testing.assert_array_equal(data.episode, [10, 20, 30, 40])
    np.testing.assert_array_equal(data.regret, result.regret)
    np.testing.assert_array_equal(data.violations[1, 2, 3], history.violation[1, 2, 3])
    np.testing.assert_array_equal(data.multipliers, history.multipliers)
    np.testing.assert_array_equal(data.radius, history.metrics.radius)
    multipliers = data.sel(certificate="multipliers in their box")
    found = result.certificate("multipliers in their box")
    np.testing.assert_array_equal(multipliers.certificate_measured, found.measured)
    np.testing.assert_array_equal(multipliers.certificate_status, found.status)
    for variable in data.data_vars.values():
        assert variable.attrs["long_name"]
        assert variable.attrs["units"]
    assert json.loads(data.attrs["versions"])["jax"] == jax.__version__


def test_guarantees_say_what_they_bound(runs):
    _, history, result = runs
    data = dataset_of(history, result, dims=("confidence_scale", "seed"))
    for certificate, about in zip(result.certificates, data.about.values, strict=True):
        bounded = [s for s in Subject if certificate.name.startswith((f"{s} ", f"{s}, "))]
        assert about == certificate.about == (bounded or [Subject.OTHER])[0], certificate.name
    assert set(data.about.values) == set(Subject)
    assert set(data.certificate_status.values.ravel()) <= set(Status)
    assert data.probability.values.min() >= 0


def test_policies_of_what_only_pads_are_nan(runs):
    cmdp, history, result = runs
    data = dataset_of(history, result, dims=("confidence_scale", "seed"))
    mask = np.asarray(cmdp.layers.action_mask)
    np.testing.assert_array_equal(np.isfinite(data.policy[0, 0]), mask)
    states = mask.any(-1)
    np.testing.assert_allclose(data.policy[0, 0].sum("action").values[states], 1)


def test_a_learner_without_confidence_set_has_no_radius():
    cmdp = make("random", sizes=(1, 2, 1), num_actions=2)
    history = run(jax.random.key(0), cmdp, learners.uniform(cmdp.layers), 10, checkpoints=2)
    data = dataset_of(history, evaluate(history, cmdp), dims=())
    assert np.isnan(data.radius).all()
    assert data.regret.dims == ("checkpoint",)


def test_names_must_fit_the_axes(runs):
    _, history, result = runs
    with pytest.raises(ValueError, match=r"2 leading axes, of lengths \(2, 3\), but 1 names"):
        dataset_of(history, result)
