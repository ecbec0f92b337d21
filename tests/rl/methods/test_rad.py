"""RAD: which frames are changed, when they are drawn anew, and that an evaluation sees none of it."""

import numpy as np
import pytest
import torch

from clop.augment import AUGMENTATIONS, CLOP_CODE, augmentation
from clop.errors import UsageError
from clop.kernels.winograd import fewer_products
from clop.rl.agent import Agent
from clop.rl.envs.levels import LevelSet
from clop.rl.games import GAMES
from clop.rl.methods import compose
from clop.rl.methods.base import Method, Settings
from clop.rl.methods.clop import Clop
from clop.rl.methods.daac import Daac
from clop.rl.methods.rad import Rad
from clop.rl.methods.rand_fm import RandFm
from clop.rl.network import as_input

PLACES = ("collect", "collect-step", "both", "update")
each_place = pytest.mark.parametrize("where", PLACES)


@pytest.fixture
def still_games(noise_games):
    """Games whose frame never changes and is the same in all envs, so that only the augmentation does."""

    class StillGames(noise_games):
        def observe(self, out=None):
            frames = super().observe(out)
            picture = np.random.default_rng(7).integers(0, 256, (1, 64, 64, 3), np.uint8)
            frames.obs[:] = picture
            return frames

    return StillGames


@pytest.fixture
def make_rad(make_learner, still_games):
    """A learner on still games; its method knows what it acted on."""

    class Watching(Method):
        def __init__(self):
            self.acted, self.learnt = [], []

        def act(self, obs, stage, ctx):
            self.acted.append(obs.clone())
            return super().act(obs, stage, ctx)

        def views(self, batch, phase, ctx):
            self.learnt.append(batch)
            return super().views(batch, phase, ctx)

    def make(config, **settings):
        watching, rad = Watching(), config.build()
        games = still_games(settings.get("num_envs", 4))
        learner = make_learner(compose_built({"rad": rad, "watching": watching}), games, **settings)
        learner.rad, learner.watching = rad, watching
        return learner

    return make


def compose_built(methods):
    class Built:
        def __init__(self, method):
            self.method = method

        def build(self):
            return self.method

    return compose({name: Built(method) for name, method in methods.items()})


def configured(config, game="bigfish"):
    method = config.build()
    return method, method.configure(Settings(LevelSet(game)))


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("game", GAMES)
def test_the_augmentation_is_the_games_best_unless_given(game):
    method, _ = configured(Rad(), game)
    assert isinstance(method.augmentation, AUGMENTATIONS[GAMES[game].best_augmentation])
    assert method.notes() == {"augmentation": GAMES[game].best_augmentation}
    assert configured(Rad(aug="cutout_color"), game)[0].notes() == {"augmentation": "cutout_color"}


@pytest.mark.parametrize("name", CLOP_CODE)
def test_the_constants_of_the_clop_authors_are_an_option(name):
    method, _ = configured(Rad(aug=name, constants="clop", where="both"))
    assert method.augmentation == CLOP_CODE[name]


def test_half_of_the_frames_are_grey_as_in_rads_own_code():
    """DrAC's makes all of them grey."""
    assert configured(Rad(aug="grayscale"))[0].augmentation.p == 0.5
    assert configured(Rad(aug="grayscale", constants="drac"))[0].augmentation.p == 1
    assert configured(Rad(aug="grayscale", p=0.2))[0].augmentation.p == 0.2


def test_settings_reach_the_augmentation():
    assert configured(Rad(aug="flip", flip_axis="vertical", p=0.9))[0].augmentation == augmentation(
        "flip", flip_axis="vertical", p=0.9
    )
    assert configured(Rad(), "bossfight")[0].augmentation.flip_axis == "horizontal"


def test_a_probability_that_is_none_is_refused():
    with pytest.raises(UsageError, match=r"rad\.p is a probability and must lie in \[0, 1\], got 2"):
        Rad(p=2)


# ---- collecting ------------------------------------------------------------------------------------------------------


def test_collect_changes_each_env_alike_for_a_rollout_and_otherwise_in_the_next(make_rad):
    """Fails when the draw is made anew at each step, or shared by the envs, or kept."""
    learner = make_rad(Rad(aug="crop"), small=True)
    rollouts = []
    for _ in range(2):
        learner.iterate()
        rollouts.append(learner.rollout.obs.clone())
    for obs in rollouts:
        assert (obs == obs[:1]).all()
        assert len({frame.numpy().tobytes() for frame in obs[0]}) == 4
    assert not torch.equal(rollouts[0], rollouts[1])


def test_collect_step_changes_each_env_at_each_step(make_rad):
    learner = make_rad(Rad(aug="crop", where="collect-step"), small=True)
    learner.iterate()
    assert len({frame.numpy().tobytes() for frame in learner.rollout.obs.flatten(0, 1)}) > 12


@each_place
def test_what_the_rollout_stores(make_rad, where):
    learner = make_rad(Rad(aug="crop", where=where))
    raw = torch.from_numpy(learner.games.observe().obs)
    learner.iterate()
    changed = where.startswith("collect")
    assert all(torch.equal(obs, raw) is not changed for obs in learner.rollout.obs)
    assert torch.equal(torch.from_numpy(learner.games.observe().obs), raw)


def test_the_bootstrap_frame_is_changed_like_the_others(make_rad):
    """The CLOP authors' code forgets it."""
    learner = make_rad(Rad(aug="crop"), small=True)
    learner.iterate()
    assert len(learner.watching.acted) == 5
    assert torch.equal(learner.watching.acted[4], learner.rollout.obs[3])


@pytest.mark.parametrize("name", ["random_conv", "color_jitter"])
@each_place
def test_the_policy_that_acted_is_the_one_that_learns_only_if_frames_are_changed_in_collecting(
    make_learner, sharpen, name, where
):
    """With ``collect`` and ``collect-step`` the first ratios are 1, with ``both`` and ``update`` they are not."""
    learner = sharpen(make_learner(compose({"rad": Rad(aug=name, where=where)})))
    metrics, _ = learner.iterate()
    if where.startswith("collect"):
        assert metrics["approx_kl"] == pytest.approx(0, abs=1e-7)
    else:
        assert metrics["approx_kl"] > 1e-5


# ---- updates ---------------------------------------------------------------------------------------------------------


def test_update_draws_anew_for_each_minibatch(make_rad):
    learner = make_rad(Rad(aug="crop", where="update"), small=True, update_epochs=2)
    raw = learner.games.observe().obs[0].tobytes()
    learner.iterate()
    one, other = learner.watching.learnt
    seen = {frame.numpy().tobytes() for batch in (one, other) for frame in batch.obs}
    assert raw not in seen
    assert len(seen) > 24  # of 32


def test_both_draws_anew_for_each_pass(make_rad):
    learner = make_rad(Rad(aug="crop", where="both"), update_epochs=2)
    seen = []
    learner.model.encoder.block1.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    learner.iterate()
    frames = {frame.numpy().tobytes() for passed in seen for frame in passed}
    assert [len(passed) for passed in seen] == [4] * 5 + [16] * 2
    assert len(frames) > 40  # of 52; there are 625 crops


# ---- random convolution ----------------------------------------------------------------------------------------------


def test_a_random_filter_is_shared_by_all_envs_for_an_iteration_and_the_rollout_stays_raw(make_rad):
    learner = make_rad(Rad(aug="random_conv"), update_epochs=2)
    raw, seen, filters = torch.from_numpy(learner.games.observe().obs), [], []
    learner.model.encoder.block1.register_forward_pre_hook(lambda _, args: seen.append(args[0].clone()))
    for _ in range(2):
        learner.iterate()
        assert learner.rollout.obs.dtype == torch.uint8
        assert torch.equal(learner.rollout.obs[0], raw)
        filters.append(learner.rad.layer.held["filters"])
    assert filters[0].shape == (1, 3, 3, 3, 3)
    assert not torch.equal(*filters)
    for iteration, passes in enumerate((seen[:7], seen[7:])):
        expected = torch.conv2d(as_input(raw[:1]), filters[iteration][0], padding=1)
        for passed in passes:
            torch.testing.assert_close(passed, expected.expand_as(passed))


def test_a_filter_for_each_env_and_step_needs_frames_of_floats(make_rad):
    learner = make_rad(Rad(aug="random_conv", where="collect-step"))
    learner.iterate()
    assert learner.rollout.obs.shape == (4, 4, 3, 64, 64)
    assert learner.rollout.obs.dtype == torch.float32
    assert len(learner.rollout.obs.flatten(0, 1).flatten(1).sum(1).unique()) == 16
    assert configured(Rad(aug="color_jitter", where="collect-step"))[1].frames == "bytes"


@pytest.mark.parametrize("order", [("rad", "daac"), ("daac", "rad")])
def test_a_critic_of_its_own_sees_the_filtered_frames_too(make_learner, order):
    configs = {"rad": Rad(aug="random_conv"), "daac": Daac()}
    learner = make_learner(compose({name: configs[name] for name in order}))
    learner.iterate()
    learner.collect()
    batch = learner.rollout.batch(torch.arange(16))
    filtered = learner.method.methods["rad"].layer.augmentation.apply(
        as_input(batch.obs), learner.method.methods["rad"].layer.held
    )
    with torch.no_grad():
        learner.method.prepare(learner.rollout, learner.context())
        learner.model.eval()
        torch.testing.assert_close(learner.model(filtered).value, batch.values, atol=1e-5, rtol=1e-4)
        assert not torch.allclose(learner.model(batch.obs).value, batch.values, atol=1e-3)


@pytest.mark.parametrize("order", [("rad", "daac"), ("daac", "rad")])
def test_so_it_does_when_each_pass_draws_anew(make_learner, order):
    """Frames stay bytes, which a critic that was forgotten would read as they are."""
    configs = {"rad": Rad(aug="cutout", where="both"), "daac": Daac()}
    learner = make_learner(compose({name: configs[name] for name in order}))
    seen = []
    first = learner.model.critic_encoder.block1
    first.register_forward_hook(lambda _, arguments, __: seen.append(arguments[0].clone()))
    learner.method.begin_iteration(learner.context())
    learner.collect()
    raw = [as_input(frames) for frames in learner.rollout.obs]
    assert len(seen) == len(raw) + 1
    for changed, frames in zip(seen, raw, strict=False):
        assert (changed == 0).sum() > (frames == 0).sum() + 4 * 3 * 7 * 7 - 100


def test_but_nothing_of_what_other_methods_do_to_the_frames_of_the_policy(make_learner):
    learner = make_learner(compose({"rand_fm": RandFm(), "rad": Rad(aug="cutout", where="both"), "daac": Daac()}))
    learner.method.begin_iteration(learner.context())
    assert learner.model.critic_encoder.input is learner.method.methods["rad"].layer


# ---- evaluation ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "mode"), [("crop", "eval"), ("random_conv", "train"), ("random_conv", "eval")])
@each_place
def test_an_evaluation_sees_clean_frames(make_learner, noise_games, name, mode, where):
    """As protocols, videos and tests while training have it: through an agent."""
    learner = make_learner(compose({"rad": Rad(aug=name, where=where)}), mode=mode)
    learner.iterate()
    obs = torch.from_numpy(noise_games(3, seed=5).observe().obs)
    before = learner.method_rng.get_state()
    agent = Agent(learner.model, learner.method, learner.context(), learner.settings.spec)
    with agent.playing(seed=1):
        output = agent(obs)
    plain = make_learner()
    plain.model.load_state_dict(learner.model.state_dict())
    with torch.no_grad(), fewer_products():
        expected = plain.model(obs)
    assert torch.equal(output.logits, expected.logits)
    assert torch.equal(output.value, expected.value)
    assert torch.equal(learner.method_rng.get_state(), before)


def test_so_does_one_between_the_start_of_an_iteration_and_its_first_frame(make_learner, noise_games):
    """Where another method may look at levels of its own."""
    learner = make_learner(compose({"rad": Rad(aug="random_conv")}))
    obs = torch.from_numpy(noise_games(3, seed=5).observe().obs)
    clean = learner.method.act(obs, "eval", learner.context()).logits
    learner.method.begin_iteration(learner.context())
    assert torch.equal(learner.method.act(obs, "eval", learner.context()).logits, clean)
    learner.method.observe(obs, learner.context())
    assert not torch.equal(learner.method.act(obs, "rollout", learner.context()).logits, clean)


# ---- composition -----------------------------------------------------------------------------------------------------


@each_place
def test_rad_goes_with_clop(make_learner, vector, where):
    """Each of them matters: without it, one update leads elsewhere."""
    parts = {"rad": Rad(aug="random_conv", where=where), "clop": Clop(0.5)}
    learners = [make_learner(compose(of)) for of in (parts, {"rad": parts["rad"]}, {"clop": parts["clop"]})]
    for learner in learners:
        learner.iterate()
    both, *alone = (vector(learner.model.parameters()) for learner in learners)
    assert not any(torch.equal(both, one) for one in alone)
