"""What holds for every method alike: its name, that at zero strength it is its base, and that it trains."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch

from clop.cli import main
from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder, read_checkpoint
from clop.rl.config import TrainConfig
from clop.rl.envs.backends import installed_backends
from clop.rl.envs.levels import LevelSet
from clop.rl.methods import METHODS, compose, parse
from clop.rl.methods.base import Method, Settings
from clop.rl.methods.clop import Clop
from clop.rl.methods.clop_auto import ClopAuto, ClopAutoMethod
from clop.rl.methods.clop_consistency import ClopConsistency
from clop.rl.methods.daac import Daac
from clop.rl.methods.drac import Drac
from clop.rl.methods.dropout import Dropout
from clop.rl.methods.idaac import Idaac
from clop.rl.methods.mixreg import Mixreg
from clop.rl.methods.rad import Rad
from clop.rl.methods.rand_fm import RandFm
from clop.rl.methods.ucb_drac import UcbDrac
from clop.rl.methods.weight_decay import WeightDecay
from clop.rl.network import slots_of
from clop.rl.settings import NetworkConfig, PPOConfig

PAGE = Path(__file__).parents[3].joinpath("docs", "methods.md").read_text()
TOGETHER = ("idaac+clop", "rad+clop", "mixreg+clop", "drac+clop")

_UNIFORM = {"value_epochs": 2, "value_every": 1, "advantage_coef": 0.25}

ZERO = {
    "clop": (Clop(alpha=0.0), None),
    "clop_auto": (ClopAuto(largest=0.0), None),
    "clop_consistency": (ClopConsistency(coef=0.0), None),
    "drac": (Drac(alpha_r=0.0), None),
    "dropout": (Dropout(p=0.0), None),
    "idaac": (Idaac(order_coef=0.0, **_UNIFORM), Daac(**_UNIFORM)),
    "mixreg": (Mixreg(beta=0.0), None),
    "rad": (Rad(p=0.0), None),
    "rand_fm": (RandFm(beta=0.0, clean=1.0), None),
    "ucb_drac": (UcbDrac(alpha_r=0.0), None),
    "weight_decay": (WeightDecay(coef=0.0), None),
}
"""Settings at which a method does nothing, and its base if that is not PPO."""

PUBLISHED = {
    "batch_norm": {"where": "all", "statistics": "running"},
    "clop": {"alpha": None, "slot": None, "critic": "clean", "variant": "paper", "rollout_mode": "train"},
    "clop_auto": {"num_levels": None, "largest": 1.0, "variant": "paper"},
    "clop_consistency": {"coef": 0.1, "alpha": None, "variant": "paper"},
    "daac": {"policy_epochs": 1, "value_epochs": 9, "value_every": 1, "advantage_coef": 0.25},
    "drac": {"alpha_r": 0.1, "aug": None, "kl": "exact", "flip_axis": "horizontal"},
    "dropout": {"p": 0.1, "style": "actor", "lam": 0.5, "critic": "fast"},
    "ibac_sni": {"beta": 1e-4, "lam": 0.5, "samples": 12, "weight_decay": 1e-4},
    "idaac": {"settings": "best", "policy_epochs": 1, "same_episode": False},
    "mixreg": {"beta": 0.2, "logp": "mixed", "mixobs": False, "truncate": False},
    "rad": {"aug": None, "where": "collect", "constants": "rad", "p": None},
    "rand_fm": {"beta": 0.002, "clean": 0.1, "evaluation": "mc", "samples": 10},
    "ucb_drac": {"alpha_r": 0.1, "init": "reference", "exploration": 0.1, "window": 10, "kl": "exact"},
    "weight_decay": {"coef": 1e-4},
}
"""What a method does if nothing is said: the constants of its paper or its code, typed here from there."""

SIZES = {
    "--ppo.num-envs": "4",
    "--ppo.num-steps": "8",
    "--ppo.num-minibatches": "2",
    "--ppo.update-epochs": "1",
    "--num-levels": "20",
    "--total-timesteps": "64",
}

# Batch norm has no strength; DAAC and IBAC-SNI build another network, and their own tests compare what can be.
WITHOUT_ZERO = {"batch_norm", "daac", "ibac_sni"}


def without_a_page(text):
    """Methods of the tables that have no part of that text, or one without a formula; and such parts of no method."""
    pages = dict(page.split("\n", 1) for page in text.split("\n## ")[1:])
    complete = {name for name, page in pages.items() if page.count("$$") >= 2}
    return ((PUBLISHED.keys() | {"ppo"}) - complete) | (complete - METHODS.keys() - {"ppo"})


def test_no_published_method_is_left_out():
    assert ZERO.keys() | WITHOUT_ZERO == PUBLISHED.keys()
    assert PUBLISHED.keys() <= METHODS.keys()


def test_every_published_method_has_its_page_with_a_formula():
    assert without_a_page(PAGE) == set()
    assert without_a_page(PAGE.replace("## drac\n", "## darc\n")) == {"drac", "darc"}


def test_methods_are_named_one_by_one_or_joined_each_with_its_settings():
    assert parse("ppo") == {}
    assert parse("clop") == {"clop": Clop()}
    assert list(parse("dropout+clop")) == ["dropout", "clop"]
    assert parse("ppo + clop") == {"clop": Clop()}
    assert parse("clop(alpha=0.3)+rad") == {"clop": Clop(alpha=0.3), "rad": Rad()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clpo", "unknown method 'clpo'; did you mean 'clop'?"),
        ("clop+", "unknown method ''"),
        ("clop+dropout+clop", "named twice"),
    ],
)
def test_a_name_that_is_none_is_refused(text, message):
    with pytest.raises(UsageError, match=message.replace("?", r"\?")):
        parse(text)


@pytest.mark.parametrize("name", METHODS)
def test_a_config_builds_its_method_and_cannot_be_changed(name):
    config = METHODS[name]()
    assert isinstance(config.build(), Method)
    with pytest.raises(AttributeError):
        config.rollout_mode = "eval"


@pytest.fixture
def built(noise_games):
    """A method with the settings a user gets, and no game engine."""

    def build(name):
        if name == "clop_auto":
            return ClopAutoMethod(ClopAuto(envs=2), lambda levels, envs, *_: noise_games(envs, seed=7, end=0.5))
        return METHODS[name]().build()

    return build


def somewhere():
    """Settings that differ in what methods look at or change: the game, PPO's normalisation, the network's shape."""
    network = NetworkConfig(topology="split", impoola=True)
    return Settings(LevelSet("bigfish")), Settings(LevelSet("plunder"), PPOConfig(advantage_norm="batch"), network)


def assert_pure(make_method):
    method, before = make_method(), torch.get_rng_state()
    for settings, untouched in zip(somewhere(), somewhere(), strict=True):
        edited = method.configure(settings)
        method.fill(slots_of(edited.network.encoder), edited)
        assert method.configure(settings) == edited
        assert make_method().configure(untouched) == edited
        assert settings == untouched
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "text",
    [*METHODS, *TOGETHER, "rad(aug=random_conv, where=collect-step)", "dropout(style=coinrun)", "dropout(style=sni)"],
)
def test_what_a_method_does_before_the_network_is_built_is_pure(text):
    """Asked twice, or after other settings, it gives the same; it leaves what it was given, and draws nothing.

    Fails for one that remembers its first answer, counts its calls, or makes its layers before the seed is set.
    """
    assert_pure(lambda: compose(parse(text)))


class Remembers(Method):
    """Its first answer."""

    first = None

    def configure(self, settings):
        self.first = self.first or settings.act_in("train")
        return self.first


class Counts(Method):
    """Takes another level each time."""

    calls = 0

    def configure(self, settings):
        self.calls += 1
        return replace(settings, levels=replace(settings.levels, num_levels=200 - self.calls))


class DrawsWhileConfiguring(Method):
    def configure(self, settings):
        return replace(settings, levels=settings.levels.single(int(torch.randint(1, ()))))


class DrawsWhileFilling(Method):
    def fill(self, slots, settings):
        layer = torch.nn.Conv2d(3, 3, 1)
        slots.put("input", lambda _: layer)


@pytest.mark.parametrize("method", [Remembers, Counts, DrawsWhileConfiguring, DrawsWhileFilling])
def test_a_method_that_is_not_pure_is_found_out(method):
    """The control of the test above."""
    with pytest.raises(AssertionError):
        assert_pure(method)
    assert_pure(Method)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_that_was_asked_before_trains_bit_for_bit_like_a_fresh_one(make_learner, vector, built, name):
    """A run is checked, and its levels looked up, before it begins; fails when something is left over from that."""
    fresh, asked = built(name), built(name)
    for settings in somewhere():
        edited = asked.configure(settings)
        asked.fill(slots_of(edited.network.encoder), edited)
    one, other = (make_learner(method, num_envs=2, num_steps=2) for method in (fresh, asked))
    assert one.settings == other.settings
    assert one.iterate()[0] == other.iterate()[0]
    assert torch.equal(vector(one.model.parameters()), vector(other.model.parameters()))
    assert one.method.notes() == other.method.notes()


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_defaults_are_the_published_ones(name):
    """Fails for the 0.5 that DrAC's bandit has as a class and no run of its authors used, among others."""
    assert PUBLISHED[name].items() <= vars(METHODS[name]()).items()


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight, built, name):
    """With the settings a user gets; for what else a method may keep, see its own tests."""
    resumed_as_straight(lambda: built(name))


@pytest.mark.parametrize("name", ZERO)
def test_at_zero_strength_it_updates_bit_for_bit_like_its_base(make_learner, sharpen, vector, name):
    config, base = ZERO[name]
    settings = {"num_envs": 2, "num_steps": 4, "num_minibatches": 2, "mode": "train"}
    plain = sharpen(make_learner(compose({} if base is None else {"base": base}), **settings))
    method = sharpen(make_learner(compose({name: config}), **settings))
    for _ in range(2):
        metrics = plain.iterate()[0]
        assert metrics.items() <= method.iterate()[0].items()
    assert torch.equal(vector(plain.model.parameters()), vector(method.model.parameters()))


def test_mixed_with_all_the_weight_on_one_it_updates_bit_for_bit_like_ppo(make_learner, sharpen, vector, monkeypatch):
    """Every frame and column goes through the mixing here, beside a partner that counts for nothing."""
    pairs = lambda count, *_: (torch.arange(count), torch.arange(count).flip(0), torch.ones(count))  # noqa: E731
    monkeypatch.setattr("clop.rl.methods.mixreg.draw_pairs", pairs)
    settings = {"num_envs": 2, "num_steps": 4, "num_minibatches": 2}
    plain, mixed = (sharpen(make_learner(compose(of), **settings)) for of in ({}, {"mixreg": Mixreg()}))
    for _ in range(2):
        assert plain.iterate()[0] == mixed.iterate()[0]
    assert torch.equal(vector(plain.model.parameters()), vector(mixed.model.parameters()))


SAME_IN_ALL = {
    "clop_auto": ("bandit", "arm", "pending"),
    "idaac": ("classifier", "optimiser"),
    "ucb_drac": ("bandit", "arm"),
}
"""Parts of the states of methods that must not drift apart between processes."""


@pytest.mark.slow
@pytest.mark.skipif(not installed_backends(), reason="needs games")
@pytest.mark.parametrize(("method", "processes"), [*((name, 2) for name in METHODS), *((name, 1) for name in TOGETHER)])
def test_it_trains_through_the_command_line(method, processes, tmp_path, capsys, assert_same_state):
    """Some updates on a real game, each method in two processes and some together in one, and an evaluation."""
    out = tmp_path / "run"
    sizes = [word for pair in SIZES.items() for word in pair]
    words = ["train", "fruitbot", "--method", method, "--processes", str(processes), *sizes, "--out", str(out)]
    assert main([*words, "--test-every", "0", "--eval-episodes", "1"]) == 0, capsys.readouterr().err
    assert [row["iteration"] for row in RunFolder(out).metrics()] == [1, 2]
    states = [own["method"] for own in read_checkpoint(out / "checkpoints" / "last.pt")["processes"]]
    assert len(states) == processes
    for name in method.split("+"):
        for part in SAME_IN_ALL.get(name, ()):
            assert_same_state(states[0][name][part], states[-1][name][part])
    assert f"fruitbot with {method}" in capsys.readouterr().out


# ---- a new method --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shy:
    """A method that this repository does not have."""

    coef: float = 0.1

    def build(self):
        return ShyMethod(self)


class ShyMethod(Method):
    def __init__(self, config):
        self.config = config

    def penalty(self, batch, views, phase, ctx):
        term = (views[0].output.logits ** 2).mean()
        return self.config.coef * term, {"shyness": term}


def test_a_new_method_costs_nothing_but_itself(monkeypatch, make_learner, sharpen, vector, built, resumed_as_straight):
    """Its file and its line. Fails when a table of the others or a page has to know it.

    What is recorded of methods, runs and timings, asks nothing of it either: see tests/test_results.py.
    """
    monkeypatch.setitem(METHODS, "shy", Shy)
    test_no_published_method_is_left_out()
    assert without_a_page(PAGE) == without_a_page(f"{PAGE}\n## shy\n$$ l^2 $$\n") == set()

    config = TrainConfig.preset("quick", "bigfish", "shy(coef=0.2)+clop")
    assert (config.method, config.methods["shy"]) == ("shy+clop", Shy(0.2))
    assert TrainConfig.fromdict(config.asdict()) == config

    test_a_config_builds_its_method_and_cannot_be_changed("shy")
    test_what_a_method_does_before_the_network_is_built_is_pure("shy")
    test_a_method_that_was_asked_before_trains_bit_for_bit_like_a_fresh_one(make_learner, vector, built, "shy")
    test_a_resumed_run_goes_on_bit_for_bit(resumed_as_straight, built, "shy")
    metrics, _ = sharpen(make_learner(compose(parse("shy")))).iterate()
    assert metrics["shyness"] > 0
