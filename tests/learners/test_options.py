"""What learners declare, and their options: named, checked, and traced."""

import ast
import inspect

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pdgd_jax import learners, make, rollout
from pdgd_jax.learners import LEARNERS, declaration_of, declares, make_learner, options_of
from pdgd_jax.learners._rivals import RIVALS

REGISTERED = learners.registered_learners()  # as the package is, before a test adds one
PLAYERS = ("pdgd-ops", "uc-o-gdps", *RIVALS)
NUMBERS = [
    (name, number)
    for name in PLAYERS
    for number in learners.settings_of(name)
    if number not in ("rates", "solver", "mirror")
]


@pytest.fixture(autouse=True)
def forgotten():
    """What a test registers is forgotten after it."""
    with LEARNERS.temporarily():
        yield


@pytest.fixture(scope="module")
def cmdp():
    return make("random", sizes=(1, 2, 1), num_actions=2)


def hopeless(cmdp):
    """The same where every policy violates the constraint."""
    return type(cmdp)(cmdp.mdp, cmdp.rewards, np.full((1, *cmdp.layers.shape), 0.1))


def assert_a_vmap(build, numbers):
    """Mapped over numbers it is the learner of each, with the same program."""
    mapped = jax.vmap(build)(jnp.asarray(numbers))
    alone = [build(number) for number in numbers]
    assert len({jax.tree.structure(learner) for learner in (mapped, *alone)}) == 1
    for i, learner in enumerate(alone):
        mine = jax.tree.map(lambda leaf, i=i: leaf[i], mapped)
        chex.assert_trees_all_close(mine, learner, rtol=1e-12)
    first, second = (np.concatenate([np.ravel(x) for x in jax.tree.leaves(a)]) for a in alone)
    assert not np.array_equal(first, second)  # the number reaches the learner


@pytest.mark.parametrize(("name", "number"), NUMBERS)
def test_a_sweep_over_a_number_is_a_vmap(cmdp, name, number):
    T = 10_000  # so long that L / rho is below the fourth root of T, the ceiling of `unifying`
    assert_a_vmap(lambda x: make_learner(name, cmdp, T, **{number: x}).as_pytree(), [0.3, 0.6])


@pytest.mark.parametrize("name", PLAYERS)
def test_a_sweep_over_horizons_is_a_vmap(cmdp, name):
    assert_a_vmap(lambda T: make_learner(name, cmdp, T).as_pytree(), [100, 300])


# Specified with the mark "probable"; 3.2, 3.3, 3.5 and 3.7 of the specification of rivals.
PROBABLE = {
    "o-reps": {"eta"},
    "ucpd": {"delta", "V", "alpha", "mixing"},
    "unifying": {"ceiling"},
    "wei-yu-neely": {"V", "alpha"},
}


@pytest.mark.parametrize("name", RIVALS)
def test_constants_that_are_only_probable_say_so(name):
    """Each is a setting with a default, and its line of the docstring says that it is uncertain."""
    _, _, section = learners.about_learner(name).partition("\nArgs:\n")
    lines = inspect.cleandoc(section).replace("\n  ", " ").splitlines()
    unsure = {line.partition(":")[0] for line in lines if "ot certain" in line}
    assert unsure == PROBABLE.get(name, set())
    assert unsure <= set(learners.settings_of(name))


@pytest.mark.parametrize("name", ["ucpd", "o-reps", "wei-yu-neely", "cold", "unifying"])
def test_defaults_are_those_of_the_specification(cmdp, name):
    T, L, X, A = 100, 2, 4, 2
    rho = learners.margin_of("unifying", cmdp, T)
    top = min(L / rho, T**0.25)
    probable = {
        "ucpd": {"V": L * T**0.5, "alpha": L * T, "mixing": 1 / T},
        "o-reps": {"eta": (np.log(X * A / L) / T) ** 0.5},
        "wei-yu-neely": {"V": T**0.5, "alpha": T},
        "cold": {"V": T**0.75, "alpha": T**1.25},
        "unifying": {
            "rho": rho,
            "ceiling": top,
            "eta": (np.log(X * A / L) / T) ** 0.5 / (1 + top),
            "dual_step": top / (L * T**0.5),
        },
    }[name]
    named = make_learner(name, cmdp, T, **probable)
    chex.assert_trees_all_close(named, make_learner(name, cmdp, T), rtol=1e-12)
    assert set(probable) <= set(options_of(name))


ORDER = ("Config", "State", "init", "policy", "update")


@pytest.mark.parametrize("name", PLAYERS)
def test_a_learner_is_one_file_in_the_usual_order(name):
    """State, init, policy and update of the shared loop, and a file with the constructor."""
    constructor = getattr(learners, name.removesuffix("-known").replace("-", "_"))
    home = inspect.getmodule(constructor)
    assert home.__name__.endswith(f"._{constructor.__name__}")
    for module in (home, home.players if hasattr(home, "players") else home):
        tree = ast.parse(inspect.getsource(module)).body
        found = [node.name for node in tree if isinstance(node, ast.ClassDef | ast.FunctionDef)]
        kept = [name for name in found if name in ORDER]
        assert kept == [name for name in ORDER if name in kept]
        makers = [name for name in found if name in ("together", constructor.__name__)]
        assert all(found.index(maker) > found.index(last) for maker in makers for last in kept)


# Declarations


def test_every_learner_of_the_package_declares(cmdp):
    for name in REGISTERED:
        declaration = declaration_of(name)
        assert declaration.knows is not None, name
        assert set(declaration.knows) <= set(learners.KNOWLEDGE)
        assert declaration.feedback in learners.FEEDBACK
        setting = make_learner(name, cmdp, 100).setting  # which the loop obeys
        obeyed = setting is not None and setting.feedback == "bandit"
        assert obeyed == (declaration.feedback == "bandit"), name
    expected = {
        "pdgd-ops": ("horizon",),
        "ucpd": ("horizon",),
        "o-reps": ("transitions", "horizon"),
        "unifying": ("transitions", "rho", "horizon"),
        "uniform": (),
    }
    assert {name: declaration_of(name).knows for name in expected} == expected
    assert declaration_of("best-feasible").knows_in_words == "the whole CMDP, horizon"
    assert declaration_of("uniform").in_words == "knows: nothing; sees: nothing"


@pytest.mark.parametrize("name", PLAYERS)
def test_what_is_declared_is_what_is_used(cmdp, name):
    """Another truth changes the learner if and only if it declares to know it."""

    def built(cmdp, num_episodes=100, **settings):
        learner = make_learner(name, cmdp, num_episodes, **settings)
        return [np.asarray(leaf) for leaf in jax.tree.leaves(learner)]

    def differs(other, **settings):
        pairs = zip(built(cmdp, **settings), other, strict=True)
        return not all(np.array_equal(mine, theirs, equal_nan=True) for mine, theirs in pairs)

    P = np.array(cmdp.mdp.transition)
    P[0, 0] = P[0, 0, :, ::-1]
    moved = type(cmdp.mdp)(cmdp.layers, jnp.asarray(P))
    moved = type(cmdp)(moved, cmdp.rewards, cmdp.constraints)
    stricter = type(cmdp)(cmdp.mdp, cmdp.rewards, np.full((1, *cmdp.layers.shape), -0.9))
    margin = {"rho": 0.5} if declaration_of(name).needs_margin else {}  # moves with transitions
    used = [
        word
        for word, is_used in (
            ("transitions", differs(built(moved, **margin), **margin)),
            ("rho", differs(built(stricter))),
            ("horizon", differs(built(cmdp, 300))),
        )
        if is_used
    ]
    assert used == list(declaration_of(name).knows)


def test_learners_declare_in_two_ways_and_otherwise_say_nothing(cmdp):
    @declares(knows=["horizon", "transitions"], feedback="bandit")
    def decorated(cmdp, num_episodes):
        return learners.uniform(cmdp.layers)

    learners.register_learner("decorated", decorated)
    assert declaration_of("decorated").in_words == (
        "knows: transitions, horizon; sees: bandit feedback"
    )
    learners.register_learner("named", lambda cmdp, T: None, knows=["rho"], feedback="bandit")
    assert declaration_of("named").needs_margin
    learners.register_learner("silent", lambda cmdp, T: None)
    assert declaration_of("silent").in_words == "knows: not declared; sees: full information"
    assert not declaration_of("silent").needs_margin


def test_a_word_that_is_unknown_is_answered_with_what_is_near():
    with pytest.raises(ValueError, match=r"got 'transition' \(did you mean 'transitions'\?\)"):
        declares(knows=["transition"])
    with pytest.raises(ValueError, match="feedback must be one of full, bandit, none; got 'half'"):
        learners.register_learner("x", lambda cmdp, T: None, feedback="half")


def test_a_declared_margin_is_given_or_the_learner_is_refused(cmdp):
    given = []

    @declares(knows=["rho"])
    def mine(cmdp, num_episodes, *, rho=None):
        given.append(rho)
        return learners.uniform(cmdp.layers)

    learners.register_learner("mine", mine)
    make_learner("mine", cmdp, 100)
    make_learner("mine", hopeless(cmdp), 100, rho=0.5)
    assert given == [learners.margin_of("mine", cmdp, 100), 0.5]
    assert given[0] > 0
    sentence = "'mine' must know a margin rho > 0, .* rho is -0.2. Give its option rho a value"
    with pytest.raises(ValueError, match=sentence):
        make_learner("mine", hopeless(cmdp), 100)
    bare = declares(knows=["rho"])(lambda cmdp, num_episodes: learners.uniform(cmdp.layers))
    learners.register_learner("bare", bare)
    make_learner("bare", cmdp, 100)
    with pytest.raises(ValueError, match=r"'bare' must know a margin rho > 0, .* is -0\.2\.$"):
        make_learner("bare", hopeless(cmdp), 100)


UNSEEING = [name for name in REGISTERED if declaration_of(name).feedback != "full"]


@pytest.mark.parametrize("name", UNSEEING)
def test_what_a_learner_does_not_see_does_not_move_it(name):
    """Nothing at all if it declares so, and pairs that it did not visit with bandit feedback."""
    cmdp = make("random", sizes=(1, 3, 3, 1), num_actions=2)
    learner = make_learner(name, cmdp, 50)
    state = learner.init(jax.random.key(0))
    policy = learner.policy(state)
    outcome, _ = cmdp.draw(jax.random.key(1), cmdp.init(jax.random.key(1)), 0, policy)
    trajectory = rollout(jax.random.key(2), cmdp.mdp, policy)
    seen = np.zeros(cmdp.layers.shape, bool)
    if declaration_of(name).feedback == "bandit":
        layers = np.arange(len(trajectory.actions))
        seen[layers, trajectory.states[:-1], trajectory.actions] = True
    hidden = jax.tree.map(lambda values: jnp.where(seen, values, jnp.nan), outcome)
    after = [learner.update(state, trajectory, shown)[0] for shown in (outcome, hidden)]
    chex.assert_trees_all_equal(*after)
    chex.assert_trees_all_equal(*(learner.policy(state) for state in after))
    chex.assert_tree_all_finite(learner.policy(after[1]))


# Options


def test_options_are_the_settings_that_are_a_learners_own():
    assert options_of("ucpd") == {"V": None, "alpha": None, "mixing": None}
    assert options_of("pdgd-ops") == {}
    for name in RIVALS:
        assert not set(options_of(name)) & set(learners.SETTINGS)


@pytest.mark.parametrize(
    ("name", "option", "value", "sentence"),
    [
        ("ucpd", "W", 1, "learner 'ucpd' has no option 'W'.*; its options are V, alpha, mixing."),
        ("ucpd", "mixng", 1, r"no option 'mixng' \(did you mean 'mixing'\?\)"),
        ("uniform", "V", 1, "learner 'uniform' has no option 'V'; it has no options."),
        (
            "ucpd",
            "delta",
            1,
            r"delta is a setting that learners share.* in \[settings\], .*--delta",
        ),
        ("pdgd-ops", "solver", 1, r"it belongs in \[learners\], and is --solver"),
        ("ucpd", "V", "many", "V of learner 'ucpd' must be a finite number; got 'many'."),
        ("ucpd", "V", True, "V of learner 'ucpd' must be a finite number; got True."),
        ("ucpd", "V", float("inf"), "V of learner 'ucpd' must be a finite number; got inf."),
        ("ucpd", "V", None, "V of learner 'ucpd' must be a finite number; got None."),
        ("cold", "epsilon", "default", "must be a finite number, such as 0.5; got 'default'."),
        ("unifying", "mirror", 3, "mirror of learner 'unifying' must be text.*; got 3."),
    ],
)
def test_wrong_options_are_refused_in_a_sentence(name, option, value, sentence):
    with pytest.raises(ValueError, match=sentence):
        learners.option_value(name, option, value)


def test_options_of_ones_own_have_the_types_of_their_annotations_or_defaults():
    def mine(cmdp, T, *, patience: int = 3, mood="calm", share=0.5, loud=False, free=None):
        return learners.uniform(cmdp.layers)

    learners.register_learner("mine", mine)
    good = {"patience": 4.0, "mood": "wild", "share": 2, "loud": True}
    found = {option: learners.option_value("mine", option, x) for option, x in good.items()}
    assert found == {"patience": 4, "mood": "wild", "share": 2, "loud": True}
    assert isinstance(found["patience"], int)
    assert [learners.option_value("mine", "free", x) for x in (1, 0.5, "a", True)] == [
        1,
        0.5,
        "a",
        True,
    ]
    for option, bad in {
        "patience": 4.5,
        "mood": 3,
        "share": "half",
        "loud": 1,
        "free": [1],
    }.items():
        with pytest.raises(ValueError, match=f"{option} of learner 'mine' must be"):
            learners.option_value("mine", option, bad)
