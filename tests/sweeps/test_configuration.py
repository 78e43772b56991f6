"""Configurations: what they mean, and one sentence with file and line for whatever is wrong."""

import json
import re
from importlib import resources

import pytest

from pdgd_jax import CMDP, make, oracle, register
from pdgd_jax.instances import INSTANCES
from pdgd_jax.learners import registered_learners
from pdgd_jax.sweeps import Configuration, builtin_names, read_configuration

# Line numbers in the tests below are those of this text.
GOOD = """\
name = "mine"
key = 7
seeds = 4
checkpoints = 50

[[instance]]
make = "random"
sizes = [1, 3, 3, 1]

[[instance]]
# a comment
make = "streaming"
label = "video"
horizon = 4

[settings]
horizon = [100, 2e2]
rates = [
  "tuned",
  "theory",
  [4, 0.01],
]
delta = 0.1
confidence_scale = [1, 0]

[learners]
names = ["pdgd-ops", "uniform"]
solver = "osqp"
"""


@pytest.fixture
def read(tmp_path):
    """Reads a text as the file "c.toml"."""

    def reader(text):
        file = tmp_path / "c.toml"
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        try:
            return read_configuration(file)
        except ValueError as error:
            raise type(error)(str(error).replace(str(file), "c.toml")) from None

    return reader


def sentence(read, text):
    with pytest.raises(ValueError, match=r"^[^\n]*\.$") as caught:  # a single line
        read(text)
    return str(caught.value)


def test_a_configuration_is_read(read):
    configuration = read(GOOD)
    random, video = configuration.instances
    assert (random.make, random.label, random.options) == (
        "random",
        "random",
        {"sizes": [1, 3, 3, 1]},
    )
    assert (video.make, video.label, video.options) == ("streaming", "video", {"horizon": 4})
    assert (configuration.name, configuration.key, configuration.seeds) == ("mine", 7, 4)
    assert configuration.checkpoints == 50
    assert configuration.horizon == (100, 200)
    assert all(isinstance(horizon, int) for horizon in configuration.horizon)
    assert configuration.rates == ("tuned", "theory", (4.0, 0.01))
    assert configuration.rates_labels == ("tuned", "theory", "C=4,eta=0.01")
    assert configuration.delta == (0.1,)
    assert configuration.confidence_scale == (1.0, 0.0)
    assert configuration.learners == ("pdgd-ops", "uniform")
    assert configuration.solver == "osqp"


def test_most_keys_may_be_left_out(read):
    configuration = read('[[instance]]\nmake = "grid"\n')
    assert configuration == Configuration.from_dict({"instance": [{"make": "grid"}]})
    assert configuration.as_dict() == {
        "name": "sweep",
        "key": 0,
        "seeds": 8,
        "streams": "paired",
        "checkpoints": 200,
        "instance": [{"make": "grid", "label": "grid"}],
        "settings": {
            "horizon": [10_000],
            "rates": ["tuned"],
            "delta": [0.05],
            "confidence_scale": [1.0],
        },
        "learners": {"names": ["pdgd-ops"], "solver": "newton"},
    }


def test_a_configuration_survives_json_and_can_be_a_dictionary(read):
    configuration = read(GOOD)
    table = json.loads(json.dumps(configuration.as_dict(), allow_nan=False))
    assert Configuration.from_dict(table) == configuration
    table["key"] = 8
    assert Configuration.from_dict(table) != configuration
    table["seeds"] = "many"
    with pytest.raises(ValueError, match=r'^seeds must be a whole number, at least 1; got "many"'):
        Configuration.from_dict(table)


def test_there_are_no_more_checkpoints_than_episodes_unless_asked(read):
    text = GOOD.replace("checkpoints = 50\n", "").replace("100, 2e2", "1000, 30")
    assert read(text).checkpoints == 30


def test_one_pair_of_rates_needs_no_list(read):
    start, end = GOOD.index("rates"), GOOD.index("delta")
    assert read(GOOD[:start] + "rates = [4, 0.5]\n" + GOOD[end:]).rates == ((4.0, 0.5),)


def test_rates_that_differ_have_labels_that_differ():
    pairs = [[4.0, 0.1], [4.0, 0.1 + 1e-16], [1 / 3, 1e-9]]
    table = {"instance": [{"make": "grid"}], "settings": {"rates": pairs}}
    assert len(set(Configuration.from_dict(table).rates_labels)) == 3


def test_labels_are_made_unique():
    makes = [{"make": "grid"}, {"make": "grid"}, {"make": "random", "label": "grid-2"}]
    configuration = Configuration.from_dict({"instance": [*makes, {"make": "grid"}]})
    labels = [instance.label for instance in configuration.instances]
    assert labels == ["grid", "grid-3", "grid-2", "grid-4"]


WHOLE = "must be a whole number, from 1 to 2147483647"
TOP = "the keys are name, key, seeds, streams, checkpoints, instance, settings, learners."
SETTINGS = "its keys are horizon, rates, delta, confidence_scale."
RATES = 'rates must be "theory", "tuned" or a pair [C, eta] of positive numbers'
LEARNERS = ", ".join(registered_learners())

WRONG = [
    # typing errors
    ("seeds = 4", "seeds = ", 3, "Invalid value at column 9; this is not TOML."),
    ("seeds = 4", "seeds 4", 3, "Expected '=' after a key in a key/value pair at column 7; this"),
    ('"mine"', '"mine', 1, "Illegal character '\\n' at column 13; this is not TOML."),
    ("[settings]", "[settings", 16, "Expected ']' at the end of a table declaration at column 10"),
    ('"osqp"\n', '"""osqp\n', 28, "Unterminated string at the end; this is not TOML."),
    # keys
    ("seeds", "seed", 3, f"unknown key 'seed' (did you mean 'seeds'?); {TOP}"),
    ("seeds", "qqqq", 3, f"unknown key 'qqqq'; {TOP}"),
    (
        "delta",
        "dleta",
        23,
        f"unknown key 'dleta' in [settings] (did you mean 'delta'?); {SETTINGS}",
    ),
    (
        "delta",
        "seeds",
        23,
        f"unknown key 'seeds' in [settings] (it belongs at the top); {SETTINGS}",
    ),
    ("seeds", "horizon", 3, f"unknown key 'horizon' (it belongs in [settings]); {TOP}"),
    ("names", "name", 27, "unknown key 'name' in [learners] (it belongs at the top); its keys are"),
    ("[learners]", "[learner]", 26, f"unknown key 'learner' (did you mean 'learners'?); {TOP}"),
    (
        "sizes",
        "size",
        8,
        "instance 'random' has no option 'size' (did you mean 'sizes'?); its options are sizes, ",
    ),
    # types
    ("= 4\n", '= "four"\n', 3, 'seeds must be a whole number, at least 1; got "four".'),
    ("= 4\n", "= true\n", 3, "seeds must be a whole number, at least 1; got true."),
    ("= 4\n", "= 4.5\n", 3, "seeds must be a whole number, at least 1; got 4.5."),
    ("= 4\n", "= [4]\n", 3, "seeds must be a whole number, at least 1; got [4]."),
    ("[100, 2e2]", "1979-05-27", 17, f'horizon {WHOLE}; got "1979-05-27".'),
    ("100, 2e2", "100, nan", 17, f"horizon {WHOLE}; got NaN."),
    ("100, 2e2", "100, inf", 17, f"horizon {WHOLE}; got Infinity."),
    ("100, 2e2", "100, {a = 1}", 17, f'horizon {WHOLE}; got {{"a": 1}}.'),
    ('"mine"', "3", 1, "name must be text on one line, not empty; got 3."),
    ('"video"', '""', 13, 'label must be text on one line, not empty; got "".'),
    ('"video"', '"a\\u0000"', 13, 'label must be text on one line, not empty; got "a\\u0000".'),
    ('"video"', '"a\\u001b[2J"', 13, "label must be text on one line, not empty; got "),
    ('"streaming"', "1", 12, "make must be text on one line, not empty; got 1."),
    ("horizon = 4", "horizon = inf", 14, "horizon must be finite numbers, text, or true or false;"),
    ("horizon = 4", "horizon = 07:32:00", 14, "horizon must be finite numbers, text, or true or "),
    ("key = 7", "key = -1", 2, "key must be a whole number, from 0 to 4294967295; got -1."),
    # values
    ("100, 2e2", "100, 0", 17, f"horizon {WHOLE}; got 0."),
    ("100, 2e2", "100, 3e9", 17, f"horizon {WHOLE}; got 3000000000.0."),
    ("= 4\n", "= 0\n", 3, "seeds must be a whole number, at least 1; got 0."),
    ("= 50", "= 0", 4, "checkpoints must be a whole number, at least 1; got 0."),
    ("0.1\n", "1\n", 23, "delta must be a number strictly between 0 and 1; got 1."),
    ("0.1\n", "[0.1, 0.0]\n", 23, "delta must be a number strictly between 0 and 1; got 0.0."),
    ("[1, 0]", "-1", 24, "confidence_scale must be a finite number, at least 0; got -1."),
    ("[1, 0]", "inf", 24, "confidence_scale must be a finite number, at least 0; got Infinity."),
    ('"theory"', '"theorie"', 18, f"{RATES}; got \"theorie\" (did you mean 'theory'?)."),
    ("[4, 0.01]", "[4, 0.01, 1]", 18, f"{RATES}; got [4, 0.01, 1]."),
    ("[4, 0.01]", "[4, -1]", 18, f"{RATES}; got [4, -1]."),
    ("[4, 0.01]", "4", 18, f"{RATES}; got 4."),
    (
        '"streaming"',
        '"straming"',
        12,
        "unknown instance 'straming' (did you mean 'streaming'?); the instances are bidding, ",
    ),
    (
        '"uniform"',
        '"unifrom"',
        27,
        "unknown learner \"unifrom\" (did you mean 'uniform'?); the lea",
    ),
    ('"uniform"', "3", 27, f"unknown learner 3; the learners are {LEARNERS}"),
    (
        '"osqp"',
        '"oqsp"',
        28,
        "unknown solver \"oqsp\" (did you mean 'osqp'?); the solvers are newto",
    ),
    # what is missing or contradicts itself
    ('make = "streaming"', "", 10, 'this instance does not say which; add make = "random".'),
    ("[100, 2e2]", "[]", 17, "horizon lists nothing; give at least one value."),
    ('["pdgd-ops", "uniform"]', "[]", 27, "names lists nothing; give at least one value."),
    ("100, 2e2", "100, 1e2", 17, "horizon lists 100.0 twice."),
    ('"theory"', '"tuned"', 18, 'rates lists "tuned" twice.'),
    ('"uniform"', '"pdgd-ops"', 27, 'names lists "pdgd-ops" twice.'),
    ("delta = 0.1", "horizon = 5", 23, "this key is set already; a key is set once."),
    (
        "[learners]",
        "[settings]",
        26,
        "Cannot declare ('settings',) twice at column 10; this is not",
    ),
    (
        "= 50",
        "= 101",
        4,
        "checkpoints are at most as many as the shortest horizon has episodes, 100; got 101.",
    ),
    (
        "sizes = [1, 3, 3, 1]",
        'label = "video"',
        8,
        "two instances have the label 'video'; labels tell them apart.",
    ),
]


@pytest.mark.parametrize(("good", "bad", "line", "start"), WRONG)
def test_a_mistake_is_one_sentence_with_file_and_line(read, good, bad, line, start):
    assert good in GOOD
    assert sentence(read, GOOD.replace(good, bad, 1)).startswith(f"c.toml, line {line}: {start}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "c.toml, line 1: there is no instance to learn on; add one with [[instance]] and "),
        ("seeds = 1\ninstance = []", "c.toml, line 2: there is no instance to learn on; add one "),
        ("instance = 3", "c.toml, line 1: there is no instance to learn on; add one with"),
        ("\ninstance = [3]", "c.toml, line 2: an instance is a table, [[instance]]; got 3."),
        ("\n\nsettings = 3", "c.toml, line 3: settings is a table, [settings]; got 3."),
        (
            "\nsettings.delta = 1\n[[instance]]\nmake = 'grid'",
            "c.toml, line 2: delta must be a number strictly",
        ),
        (
            "instance = [{make = 'grid'}]\nsettings = {delta = 1}",
            "c.toml, line 2: delta must be a number strictly",
        ),
        ('a = """\n[settings]\ndelta = 1\n"""', "c.toml, line 1: unknown key 'a'; the keys are"),
        (b"name = 'a'\n# \xff\n", "c.toml, line 2: this is not UTF-8 text."),
        ("seeds = " + "[" * 2000, "c.toml: this is nested too deeply to be a configuration."),
    ],
)
def test_the_line_is_found_however_it_is_written(read, text, expected):
    assert sentence(read, text).startswith(expected)


def test_files_that_cannot_be_read(tmp_path):
    for source, expected in [
        ("quik", "there is no file 'quik' (did you mean 'quick'?); the built-in configurations ar"),
        (tmp_path / "no.toml", f"there is no file '{tmp_path}/no.toml'; the built-in"),
        (tmp_path, f"'{tmp_path}' cannot be read: Is a directory."),
        ("a\0b", r"'a\x00b' cannot be read: embedded null byte."),
        ("../configs/quick", "there is no file '../configs/quick'"),
    ]:
        with pytest.raises(ValueError, match="^" + re.escape(expected)):
            read_configuration(source)


def test_names_that_look_like_paths_are_only_names(read):
    text = GOOD.replace('"mine"', '"../../mine"').replace('"video"', '"/etc/passwd"')
    configuration = read(text)
    assert configuration.name == "../../mine"
    assert configuration.instances[1].label == "/etc/passwd"


@pytest.fixture
def forgotten():
    """What a test registers is forgotten after it."""
    with INSTANCES.temporarily():
        yield


def test_instances_are_built_with_file_and_line_for_what_only_they_know(read, forgotten):
    horizons = []

    built = make("two-phase")

    def fickle(num_episodes: int = 3, shape: str = "round") -> CMDP:
        if shape != "round":
            raise ValueError(f"shape must be round; got {shape}.")
        horizons.append(num_episodes)
        return built

    register("fickle", fickle)
    head = '[[instance]]\nmake = "fickle"\n\n[[instance]]\nmake = "fickle"\n'
    first, second = read(head + "num_episodes = 5").instances
    assert first.build(70) == second.build(70) == built
    assert horizons == [70, 5]  # the horizon, unless the configuration says something else
    _, bad = read(head + 'shape = "square"').instances
    with pytest.raises(ValueError, match=r", line 4: instance 'fickle-2': shape must be round; go"):
        bad.build(1)
    (odd,) = Configuration.from_dict({"instance": [{"make": "random", "sizes": 3}]}).instances
    with pytest.raises(ValueError, match=r"^instance 'random': sizes must name at least two layer"):
        odd.build(1)
    register("empty", lambda: None)
    (empty,) = Configuration.from_dict({"instance": [{"make": "empty"}]}).instances
    with pytest.raises(ValueError, match="the builder of 'empty' must return a CMDP; got None"):
        empty.build(1)


def test_options_of_the_wrong_kind_are_refused_on_their_line(read):
    with pytest.raises(ValueError, match=r"line 3: budget of instance 'grid' must be a finite num"):
        read('[[instance]]\nmake = "grid"\nbudget = "abc"')


@pytest.mark.parametrize("name", ["paper", "quick", "rivals"])
def test_the_built_in_configurations_are_good(name):
    configuration = read_configuration(name)
    assert name in builtin_names()
    assert configuration.name == name
    assert set(configuration.learners) <= set(registered_learners())
    file = resources.files("pdgd_jax.sweeps").joinpath("configs", f"{name}.toml")
    assert Configuration.from_dict(configuration.as_dict()) == configuration
    assert file.read_text().startswith("# ")


@pytest.mark.slow
def test_the_paper_has_four_settings_with_and_without_slater():
    configuration = read_configuration("paper")
    kinds = {"bernoulli": "stochastic", "phases": "adversarial"}
    labels = set()
    for instance in configuration.instances:
        cmdp = instance.build(max(configuration.horizon))
        rho = oracle.slater_margin(cmdp.mdp, cmdp.constraints).rho
        assert rho > 0.25 or abs(rho) < 1e-4
        rewards, constraints = (kinds[instance.options[of]] for of in ("rewards", "constraints"))
        slater = "Slater" if rho > 0.25 else "no Slater"
        labels.add(f"{rewards} r, {constraints} G, {slater}")
        for horizon in configuration.horizon:  # or there would be nothing to compare with
            average = oracle.hindsight(cmdp, horizon)
            assert oracle.optimum(cmdp.mdp, average.reward, average.constraints).feasible
    assert labels == {instance.label for instance in configuration.instances}
    assert len(labels) == 8
