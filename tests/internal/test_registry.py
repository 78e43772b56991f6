"""Things by name, added by hand, imported when asked for, or offered by what is installed."""

import importlib
import sys
import textwrap

import pytest

from pdgd_jax import learners, make, make_learner, processes, project, registered
from pdgd_jax._internal.registry import Registry
from pdgd_jax.instances import INSTANCES, builder_of
from pdgd_jax.learners import LEARNERS
from pdgd_jax.plots import FIGURES
from pdgd_jax.projection import SOLVERS, solver_of


@pytest.fixture
def fruits():
    registry = Registry("fruit")
    registry.add("apple", "a")
    registry.add("pear", "p")
    return registry


def test_a_name_stands_for_one_thing(fruits):
    assert (fruits["apple"], fruits.get("pear")) == ("a", "p")
    assert (list(fruits), len(fruits), dict(fruits)) == (
        ["apple", "pear"],
        2,
        {"apple": "a", "pear": "p"},
    )
    fruits.add("apple", "a")
    with pytest.raises(ValueError, match="^a fruit named 'apple' is registered already.$"):
        fruits.add("apple", "b")
    apples = Registry("apple")
    apples.add("x", 1)
    with pytest.raises(ValueError, match="^an apple named 'x' is registered already.$"):
        apples.add("x", 2)


def test_what_follows_from_something_else_comes_after():
    table = {"fig": "f", "apple": "never"}
    fruits = Registry("fruit", more=lambda: table)
    fruits.add("apple", "a")
    assert list(fruits.items()) == [("apple", "a"), ("fig", "f")]
    table["plum"] = "l"
    assert "plum" in fruits
    assert fruits["plum"] == "l"


def test_an_unknown_name_is_answered_with_the_nearest_and_all(unchecked, fruits):
    sentence = r"^unknown fruit 'aple' \(did you mean 'apple'\?\); the fruits are apple, pear.$"
    with pytest.raises(ValueError, match=sentence):
        fruits.get("aple")
    with pytest.raises(ValueError, match=sentence):
        fruits["aple"]
    with pytest.raises(ValueError, match="^unknown fruit 7; the fruits are apple, pear.$"):
        fruits.get(7)


def test_every_registry_suggests_the_nearest():
    for registry in (INSTANCES, LEARNERS, SOLVERS, learners.RATES, processes.KINDS, FIGURES):
        name = registry.names()[0]
        with pytest.raises(ValueError, match=rf"^unknown .* \(did you mean '{name}'\?\); .*{name}"):
            registry.get(f"{name}x")


def test_a_name_can_be_removed(fruits):
    fruits.remove("apple")
    assert "apple" not in fruits
    with pytest.raises(ValueError, match="unknown fruit 'apple'"):
        fruits.remove("apple")


def test_what_happens_temporarily_is_undone(fruits):
    def break_off():
        with fruits.temporarily({"plum": "l", "apple": "other"}):
            assert (fruits["plum"], fruits["apple"], fruits["pear"]) == ("l", "other", "p")
            fruits.remove("pear")
            fruits.add("fig", "f")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        break_off()
    assert dict(fruits) == {"apple": "a", "pear": "p"}
    with fruits.temporarily({"plum": "l"}, alone=True):
        assert fruits.names() == ("plum",)
    assert dict(fruits) == {"apple": "a", "pear": "p"}


def test_what_is_lazy_is_imported_when_asked_for(monkeypatch, tmp_path):
    (tmp_path / "lazy_fruit.py").write_text("kiwi = object()\n")
    monkeypatch.syspath_prepend(tmp_path)
    fruits = Registry("fruit")
    fruits.add_lazy("kiwi", "lazy_fruit:kiwi")
    assert "kiwi" in fruits
    assert "lazy_fruit" not in sys.modules
    kiwi = fruits["kiwi"]
    assert kiwi is sys.modules.pop("lazy_fruit").kiwi


MODULE = """
from pdgd_jax import make
from pdgd_jax.learners import uniform
from tests.quick import QUICK as solver

def narrow(length: int = 2):
    '''A narrow one.'''
    return make("random", sizes=(1, *[2] * length, 1))

def idle(cmdp, num_episodes, *, patience=3):
    return uniform(cmdp.layers)

not_a_solver = 3
"""

GOOD = """
[pdgd_jax.instances]
narrow = acme_pdgd:narrow
grid = acme_pdgd:narrow
[pdgd_jax.learners]
idle = acme_pdgd:idle
[pdgd_jax.solvers]
near = acme_pdgd:solver
"""

BAD = """
[pdgd_jax.instances]
absent = no_such_module:builder
[pdgd_jax.learners]
nameless = acme_pdgd:no_such_name
idle-too = acme_pdgd:idle
[pdgd_jax.solvers]
odd = acme_pdgd:not_a_solver
"""


def install(site, name, entry_points):
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(entry_points)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Two distributions, of which one is broken."""
    (tmp_path / "acme_pdgd.py").write_text(textwrap.dedent(MODULE))
    install(tmp_path, "acme", GOOD)
    install(tmp_path, "faulty", BAD)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    with INSTANCES.temporarily(), LEARNERS.temporarily(), SOLVERS.temporarily():
        yield tmp_path
    sys.modules.pop("acme_pdgd", None)


def test_an_installed_package_adds_its_own_names(installed):
    assert "narrow" in registered()
    assert "near" in SOLVERS
    assert learners.registered_learners()[-3:] == ("idle", "nameless", "idle-too")
    assert "acme_pdgd" not in sys.modules
    assert make("narrow", length=3).layers.sizes == (1, 2, 2, 2, 1)
    assert learners.settings_of("idle") == {"patience": 3}
    cmdp = make("narrow")
    make_learner("idle", cmdp, 10, patience=4)
    assert solver_of("near") is sys.modules["acme_pdgd"].solver
    # Names that were added by hand are not replaced.
    assert builder_of("grid").__module__.startswith("pdgd_jax.")
    with pytest.raises(ValueError, match=r"unknown instance 'narow' \(did you mean 'narrow'\?\)"):
        make("narow")


def test_a_broken_package_is_named_and_harms_nobody(unchecked, installed):
    with pytest.raises(
        ValueError,
        match="^instance 'absent' of the distribution 'faulty' cannot be loaded: "
        "ModuleNotFoundError: No module named 'no_such_module'$",
    ):
        make("absent")
    with pytest.raises(
        ValueError,
        match="^learner 'nameless' of the distribution 'faulty' cannot be loaded: AttributeError: ",
    ):
        learners.settings_of("nameless")
    with pytest.raises(
        ValueError,
        match="^the distribution 'faulty' offers acme_pdgd:not_a_solver as solver 'odd', "
        "but it is 3, not a solver.$",
    ):
        project(None, None, None, solver="odd")
    make("narrow")


def test_a_list_of_entry_points_that_cannot_be_read_harms_nobody(installed):
    install(installed, "garbled", "[pdgd_jax.instances]\nno equals sign\n")
    assert "narrow" in INSTANCES


def test_the_command_line_lists_what_is_installed(installed, pdgd):
    code, out, _ = pdgd("instances", "narrow")
    assert code == 0
    assert "A narrow one." in out
    code, _, err = pdgd("solve", "absent")
    assert code == 2
    assert "instance 'absent' of the distribution 'faulty' cannot be loaded" in " ".join(
        err.split()
    )


def test_two_packages_that_offer_the_same_name_are_both_named(installed):
    path = installed / "faulty-1.0.dist-info" / "entry_points.txt"
    path.write_text("[pdgd_jax.instances]\nnarrow = acme_pdgd:narrow\n")
    with pytest.raises(
        ValueError,
        match=r"^instance 'narrow' is offered by several distributions \(acme, faulty\); uninst",
    ):
        make("narrow")


def test_entry_points_are_looked_up_once(installed, monkeypatch):
    looked = []
    from pdgd_jax._internal import registry as module

    ours = module.distributions
    monkeypatch.setattr(module, "distributions", lambda: looked.append(1) or ours())
    make("random", sizes=(1, 1))
    assert looked == []  # a name that is known needs none
    assert "narrow" in INSTANCES
    assert "narrower" not in INSTANCES
    list(INSTANCES)
    assert looked == [1]
