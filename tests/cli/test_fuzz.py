"""Every option of every command, and of every instance, is given wrong values.

Each is answered with one sentence and exit code 2, unless it is legal by the rules below; and
never with a traceback. Nothing is compiled: what would be played is stopped before.
"""

import itertools

import pytest
from typer.main import get_command

from pdgd_jax.cli import entry
from pdgd_jax.instances import options_of, registered
from pdgd_jax.sweeps import plan_of
from pdgd_jax.sweeps._folder import Store
from tests.synthetic import results

HUGE = "99999999999999999999999"
WRONG = ("abc", "", "-1", "0", "nan", "inf", "1e30", HUGE, "1,2,x", "[]", "(1,'a')", "{[]}")
NAMES = sorted(registered())

# What is not wrong after all.
LARGE = {"0", "1e30", HUGE}
LEGAL_OF_INSTANCES = {
    "seed": LARGE,
    "hazard_density": {"0"},
    "arrival": {"0"},
    "onward": {"0"},
    "rejection_budget": {"0"},
    "branching": LARGE,  # at most as many successors as there are states
    "hazards": {"[]"},
    "tightness": {"0"},
    "slip": {"0"},
    "education_target": {"0"},
    "budget": {"0"},
    "fast_budget": {"0"},
    "holding_budget": {"0"},
    "delivery_budget": {"0"},
    "offence_budget": {"0"},
    "effort_budget": {"0"},
    "cost": {"-1", *LARGE},  # of a Gymnasium environment: a reward, as small or large as you like
}
LEGAL = {
    ("run", "key"): {"0"},
    ("run", "confidence_scale"): LARGE,
    ("run", "out"): set(WRONG) - {""},  # folders, which nothing is written to
    ("sweep", "out"): set(WRONG),  # a dry run writes nothing
    ("plot", "title"): set(WRONG),  # any words will do
    ("sweep", "width"): {HUGE},  # at most as many lanes as there are
    ("sweep", "save_every"): {HUGE},
}
COMMANDS = get_command(entry.app).commands
# Words that a command needs to get as far as the option in question.
BASE = {
    "run": ["two-phase", "--episodes", "10"],
    "solve": ["two-phase"],
    "sweep": ["tiny.toml", "--dry-run"],
    "plot": ["results", "--force"],
    "report": ["results", "--out", "page.html"],
    "status": ["results"],
    "instances": ["two-phase"],
    "learners": ["uniform"],
}
TINY = """
checkpoints = 2
seeds = 2
[[instance]]
make = "two-phase"
[settings]
horizon = 10
[learners]
names = "uniform"
"""


def parameters():
    """(command, parameter, option) of all that take a value; an argument has no option."""
    for name, command in COMMANDS.items():
        for parameter in command.params:
            if parameter.param_type_name == "argument":
                yield name, parameter.name, None
            elif not parameter.is_flag and "--help" not in parameter.opts:
                yield name, parameter.name, parameter.opts[0]


@pytest.fixture
def wrong(unchecked, pdgd, monkeypatch, tmp_path):
    """Give `pdgd` a word that is wrong, or legal, and see what it says."""
    monkeypatch.chdir(tmp_path)

    def stop(*_, **__):
        raise SystemExit(0)

    monkeypatch.setattr("pdgd_jax.cli.run.sweep", stop)
    monkeypatch.setattr("pdgd_jax.cli.solve.describe", stop)
    plans = {}  # the same dry run again and again

    def plan_once(asked, **given):
        address = (*given.values(),)
        if address not in plans:
            plans[address] = plan_of(asked, **given)
        return plans[address]

    monkeypatch.setattr("pdgd_jax.cli.sweep.plan_of", plan_once)

    def check(*words, legal):
        code, out, err = pdgd(*words)
        assert "Traceback" not in err, words
        if legal:
            assert code == 0, (words, err)
        else:
            assert (code, out) == (2, ""), words
            assert len(err.splitlines()) == 1, (words, err)
            assert err.strip().endswith((".", ")")), (words, err)

    return check


@pytest.mark.parametrize(
    "command",
    # Figures and pages are made for what is legal, which takes time.
    [pytest.param(x, marks=pytest.mark.slow) if x in ("plot", "report") else x for x in COMMANDS],
)
def test_every_option_of_every_command(wrong, tmp_path, command):
    (tmp_path / "tiny.toml").write_text(TINY)
    with Store.create(tmp_path / "results", {"name": "made up"}) as store:
        store.save_results(results())
    base = BASE[command]
    found = [(name, option) for of, name, option in parameters() if of == command]
    for (name, option), value in itertools.product(found, WRONG):
        words = [*base, option, value] if option else [value, *base[1:]]
        wrong(command, *words, legal=value in LEGAL.get((command, name), ()))


def test_the_rules_are_about_options_that_exist():
    assert set(LEGAL) <= {(command, name) for command, name, _ in parameters()}
    known = {option for name in NAMES for option in options_of(name)}
    assert set(LEGAL_OF_INSTANCES) <= known


def test_modules_that_cannot_be_imported(wrong):
    for value in WRONG:
        if value != "abc":  # which comes with Python
            wrong("--import", value, "solve", "two-phase", legal=False)


@pytest.mark.parametrize("name", NAMES)
def test_some_values_of_every_option_of_an_instance(wrong, name):
    """Three values of each option, other ones for the next option."""
    start = 3 * sum(len(options_of(other)) for other in NAMES[: NAMES.index(name)])
    values = itertools.islice(itertools.cycle(WRONG), start % len(WRONG), None)
    for option in options_of(name):
        for value in itertools.islice(values, 3):
            give(wrong, name, option, value)


@pytest.mark.slow
@pytest.mark.parametrize("command", ["solve", "run"])
@pytest.mark.parametrize("name", NAMES)
def test_every_value_of_every_option_of_an_instance(wrong, name, command):
    for option, value in itertools.product(options_of(name), WRONG):
        give(wrong, name, option, value, command)


def give(wrong, name, option, value, command="solve"):
    legal = value in LEGAL_OF_INSTANCES.get(option, ())
    wrong(command, name, f"--{option.replace('_', '-')}={value}", legal=legal)
