"""Checks of what a person gives: which values pass, and the sentence for the others."""

import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax._internal.checks import (
    are_counts,
    check_sums,
    fraction,
    is_integer,
    is_positive,
    is_whole,
    whole_number,
)


@pytest.mark.parametrize("value", [3, 10**400, 1e5, np.int32(3), np.float32(3), jnp.asarray(3)])
def test_whole_numbers(value):
    assert is_whole(value)


@pytest.mark.parametrize(
    "value", [True, "3", None, 2.5, np.nan, np.inf, [3], np.array([3]), np.bool_(True), [[1], 2]]
)
def test_what_is_no_whole_number(value):
    assert not is_whole(value)
    with pytest.raises(ValueError, match="^x must be a whole number, at least 1; got "):
        whole_number("x", value, accept=is_whole)


def test_a_float_is_no_integer_unless_it_is_accepted():
    assert is_integer(np.int64(2))
    assert not is_integer(2.0)
    assert not is_integer(True)
    with pytest.raises(ValueError, match=r"^x must be a whole number, at least 1; got 2.0.$"):
        whole_number("x", 2.0)
    assert whole_number("x", 2.0, accept=is_whole) == 2
    with pytest.raises(ValueError, match=r"^x must be a whole number, from 0 to 1,000; got 1001.$"):
        whole_number("x", 1001, 0, 1000)
    assert whole_number("x", 1000, 0, 1000) == 1000


def test_arrays_of_numbers():
    assert are_counts(np.array([1, 2]))
    assert not are_counts(np.array([0, 2]))
    assert not are_counts(1.0)
    assert is_positive(np.array([1e-300, 2]))
    assert not any(map(is_positive, (0, -1.0, np.inf, np.nan, "a", True)))
    assert fraction("x", np.float32(1)) == 1
    for value in (-0.1, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"^x must lie in \[0, 1\]; got "):
            fraction("x", value)


def test_sums_name_the_first_row_that_is_wrong():
    rows = np.full((2, 3, 4, 2), 0.5)
    check_sums("P", rows, 1e-9)
    rows[1, 2, 0] = 0.4, 0.4
    with pytest.raises(ValueError, match="^P of layer 1, state 2, action 0 sums to 0.8; it must"):
        check_sums("P", rows, 1e-9)
    check_sums("P", rows, 0.3)
    check_sums("P", rows, 1e-9, np.arange(4)[None, None] > 0)
    rows[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="^P of step 0, state 0, action 0 sums to nan over y; no"):
        check_sums("P", rows, 0.3, over=" over y", must="no", first="step")
