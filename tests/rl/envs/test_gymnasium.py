"""Gymnasium's environments: tiny ones of our own, and MiniGrid."""

import importlib.util
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("gymnasium")

from clop.errors import UsageError
from clop.experiments.interrupts import handling
from clop.rl.envs import gymnasium as gymnasium_engine
from clop.rl.envs.gymnasium import GymnasiumEngine, alike_warning
from clop.rl.envs.gymnasium_spec import spec
from clop.rl.envs.levels import LevelSet, look_alike

FOLDER = Path(__file__).parent
MULTIROOM = "gymnasium:MiniGrid-MultiRoom-N4-S5-v0"
IMAGES = ("minigrid.wrappers:RGBImgObsWrapper", "minigrid.wrappers:ImgObsWrapper")

in_both = pytest.mark.parametrize("in_workers", [False, True], ids=["sync", "async"])
with_minigrid = pytest.mark.skipif(importlib.util.find_spec("minigrid") is None, reason="not installed: minigrid")


@pytest.fixture(autouse=True)
def tiny(monkeypatch):
    """The module of tiny games, found by its name; and no process is left behind."""
    monkeypatch.syspath_prepend(FOLDER)
    yield importlib.import_module("tiny_games")
    left = multiprocessing.active_children()
    for process in left:
        process.kill()
        process.join()
    assert left == []


def start(game="tiny_games:make", num_envs=3, *, levels=(0, 200), seed=0, in_workers=False, wrappers=()):
    return GymnasiumEngine(game, wrappers, spec(game, wrappers), num_envs, *levels, seed, in_workers)


def play(engine, steps):
    """Copies of all that an engine says, at the start and after each step; then it is closed."""
    told = []
    for step in range(steps + 1):
        if step:
            engine.act(np.arange(len(engine.rewards), dtype=np.int32) % 3)
        arrays = (engine.frames, engine.rewards, engine.dones, engine.level_seeds)
        ended = (engine.ended_level_seeds[engine.dones], engine.completed[engine.dones])
        told.append([array.copy() for array in (*arrays, *ended)] + [frame for _, frame in engine.cut_off])
    engine.close()
    return told


def assert_same(one, other):
    for left, right in zip(one, other, strict=True):
        for a, b in zip(left, right, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@in_both
def test_a_level_is_the_seed_of_reset(tiny, in_workers):
    """Fails if the vector environment's own seeds, or none, reach the game, or after the first episode."""
    engine = start(in_workers=in_workers)
    for _ in range(3 * tiny.LENGTH):
        for frame, level in zip(engine.frames, engine.level_seeds, strict=True):
            np.testing.assert_array_equal(frame[:4], tiny.first_frame(level)[:4])
        engine.act(np.zeros(3, np.int32))
    engine.close()


def test_the_same_seed_gives_the_same_games_and_another_one_others():
    one, same, other = (play(start(seed=seed), 7) for seed in (5, 5, 6))
    assert_same(one, same)
    assert not np.array_equal(one[0][0], other[0][0])


def test_copies_draw_different_levels():
    engine = start(num_envs=8, levels=(0, 0))
    assert len(set(engine.level_seeds.tolist())) == 8
    engine.close()


@pytest.mark.parametrize("game", ["make", "truncated", "both", "says_success"])
def test_games_in_processes_of_their_own_are_the_same_games(game):
    assert_same(*(play(start(f"tiny_games:{game}", in_workers=in_workers), 8) for in_workers in (False, True)))


def test_arrays_have_the_types_an_engine_promises():
    engine = start(in_workers=True)
    engine.act(np.zeros(3, np.int32))
    arrays = (engine.frames, engine.rewards, engine.dones, engine.level_seeds, engine.ended_level_seeds)
    assert [array.dtype for array in arrays] == [np.uint8, np.float32, np.bool_, np.int32, np.int32]
    assert engine.frames.shape == (3, 8, 8, 1)
    assert engine.completed.dtype == np.bool_
    engine.close()


def test_levels_come_from_the_range_and_all_of_it():
    engine, seen = start(num_envs=8, levels=(40, 5)), set()
    for _ in range(30):
        engine.act(np.zeros(8, np.int32))
        seen |= set(engine.level_seeds.tolist())
    engine.close()
    assert seen == set(range(40, 45))


@in_both
def test_an_end_is_followed_by_the_first_frame_of_the_next_episode(tiny, in_workers):
    """Fails if the next episode begins a step late, or the level that ended is taken for the one that begins."""
    engine = start(in_workers=in_workers)
    began = engine.level_seeds.copy()
    for step in range(1, tiny.LENGTH + 1):
        engine.act(np.array([0, 1, 2], np.int32))
        assert engine.dones.tolist() == [step == tiny.LENGTH] * 3
        assert engine.rewards.tolist() == [0, 1, 2]
    np.testing.assert_array_equal(engine.ended_level_seeds, began)
    assert engine.level_seeds.tolist() != began.tolist()
    np.testing.assert_array_equal(engine.frames, [tiny.first_frame(level) for level in engine.level_seeds])
    engine.close()


@in_both
def test_a_truncated_episode_is_cut_off_with_the_frame_it_was_left_at(tiny, in_workers):
    """The game draws into one array: fails if the final frame is not copied before the next episode begins."""
    engine = start("tiny_games:truncated", in_workers=in_workers)
    began = engine.level_seeds.copy()
    for _ in range(tiny.LENGTH):
        assert list(engine.cut_off) == []
        engine.act(np.zeros(3, np.int32))
    assert [env for env, _ in engine.cut_off] == [0, 1, 2]
    for (_, frame), level in zip(engine.cut_off, began, strict=True):
        np.testing.assert_array_equal(frame[:4], tiny.first_frame(level)[:4])
        assert (frame[4:] == tiny.LENGTH).all()
    engine.act(np.zeros(3, np.int32))
    assert list(engine.cut_off) == []
    engine.close()


@pytest.mark.parametrize("game", ["make", "both"])
def test_a_terminated_episode_is_not_cut_off_even_at_its_time_limit(tiny, game):
    engine = start(f"tiny_games:{game}")
    for _ in range(tiny.LENGTH):
        engine.act(np.zeros(3, np.int32))
    assert engine.dones.all()
    assert list(engine.cut_off) == []
    engine.close()


@pytest.mark.parametrize(
    ("game", "completed"),
    [
        ("make", [False, True, True]),  # terminated, with rewards of 0, 1 and 2
        ("truncated", [False] * 3),
        ("says_success", [True] * 3),
        ("says_failure", [False] * 3),
    ],
)
def test_a_level_is_completed_if_the_game_says_so_or_ends_it_with_a_reward(tiny, game, completed):
    engine = start(f"tiny_games:{game}")
    for _ in range(tiny.LENGTH):
        engine.act(np.array([0, 1, 2], np.int32))
    assert engine.completed.tolist() == completed
    engine.close()


def test_spec_tells_actions_and_time_limit(tiny):
    found = spec("tiny_games:make", ())
    assert (found.obs_shape, found.num_actions, found.noop) == (tiny.SHAPE, 3, 0)
    assert found.action_names == ("wait", "left", "right")
    assert found.time_limit == 7
    assert spec("tiny_games:make_without_arguments", ()) == found


def test_actions_that_do_not_begin_at_zero_are_moved():
    """The game refuses an action outside its space, and rewards with the action."""
    assert (spec("tiny_games:make", ()).first_action, spec("tiny_games:OneBased", ()).first_action) == (0, 1)
    engine = start("tiny_games:OneBased")
    engine.act(np.array([0, 1, 2], np.int32))
    assert engine.rewards.tolist() == [1, 2, 3]
    engine.close()


def test_wrappers_are_applied_the_innermost_first():
    wrappers = ("tiny_games:Twice", "tiny_games:Fifth")
    assert spec("tiny_games:make", wrappers).obs_shape == (5, 8, 2)
    engine = start(wrappers=wrappers)
    assert engine.frames.shape == (3, 5, 8, 2)
    engine.close()
    with pytest.raises(UsageError, match="wrapper tiny_games:Fifth of tiny_games:make raised AssertionError: expected"):
        spec("tiny_games:make", wrappers[::-1])


def test_a_game_in_the_current_folder_is_found(tmp_path, monkeypatch):
    (tmp_path / "game_beside_me.py").write_text("from tiny_games import make\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert spec("game_beside_me:make", ()).num_actions == 3


@pytest.mark.parametrize(
    ("game", "parts"),
    [
        ("shows_dict", ("Dict('image'", "; pick out the image by a wrapper: --wrapper module:Class")),
        ("LikeMiniGrid", (" --wrapper minigrid.wrappers:RGBImgObsWrapper --wrapper minigrid.wrappers:ImgObsWrapper",)),
        ("shows_tuple", ("Tuple(Box", "pick out the image")),
        ("shows_gray", ("(8, 8)", "add a channel axis")),
        ("shows_floats", ("float32", "uint8 from 0 to 255")),
        ("shows_channels_first", ("(3, 64, 64)", "move the channels last")),
        ("shows_many_channels", ("(64, 64, 17)", "show fewer channels")),
        ("shows_numbers", ("(4,)", "show an image")),
        ("shows_discrete", ("Discrete(5)", "show an image")),
        ("takes_numbers", ("(2,)", "clop.sb3.ClopCnnPolicy", "docs/recipes.md")),
        ("takes_pairs", ("MultiDiscrete([2 3])", "make them one Discrete")),
    ],
)
def test_a_refused_space_is_named_with_what_to_do(game, parts):
    with pytest.raises(UsageError) as error:
        spec(f"tiny_games:{game}", ())
    for part in (f"tiny_games:{game}", *parts):
        assert part in str(error.value)


@pytest.mark.parametrize(
    ("game", "sentence"),
    [
        (
            "tiny_games:raises",
            "raises raised RuntimeError: no graphics card; correct that, or run it without clop to see where",
        ),
        ("tiny_games:wants_to_exit", "tiny_games:wants_to_exit raised SystemExit: bye"),
        ("tiny_games:not_an_env", "tiny_games:not_an_env gave an object of type int, expected a gymnasium.Env"),
        ("tiny_games:constant", "the game tiny_games:constant is of type int, expected a function or class"),
        ("tiny_games:makee", "tiny_games has no 'makee' for the game tiny_games:makee; did you mean 'make'?"),
        ("tiny_gams:make", "there is no module 'tiny_gams' for the game; did you mean 'tiny_games'?"),
        ("clop.eror:make", "there is no module 'clop.eror' for the game; did you mean 'clop.errors'?"),
        ("qqqqqq.a:make", "no module 'qqqqqq' for the game; install it, or start clop in the folder that holds qqqqqq"),
        ("tiny_games:", "a game is given as module:function or gymnasium:ID, got 'tiny_games:'"),
        ("gymnasium:CartPol-v1", "Gymnasium knows no environment 'CartPol-v1'; did you mean 'CartPole-v1'?"),
        ("gymnasium:Qqqqqq", "no environment 'Qqqqqq'; name the package that has it: gymnasium:PACKAGE:Qqqqqq"),
        ("gymnasium:tiny_gams:A-v0", "there is no module 'tiny_gams' for the package; did you mean 'tiny_games'?"),
    ],
)
def test_a_game_that_cannot_be_made_is_refused_in_one_sentence(game, sentence):
    with pytest.raises(UsageError) as error:
        spec(game, ())
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_wrapper_that_does_not_exist_is_refused_with_a_near_one():
    with pytest.raises(UsageError, match=r"no 'Twise' for the wrapper tiny_games:Twise; did you mean 'Twice'\?"):
        spec("tiny_games:make", ("tiny_games:Twise",))
    with pytest.raises(UsageError, match="a wrapper is given as module:Class, got 'Twice'"):
        spec("tiny_games:make", ("Twice",))


def test_a_module_that_misses_another_one_is_not_taken_for_missing(tmp_path, monkeypatch):
    (tmp_path / "game_with_needs.py").write_text("import qqqqqq\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UsageError, match=r"importing game_with_needs raised ModuleNotFoundError: No module.*qqqqqq"):
        spec("game_with_needs:make", ())


@in_both
@pytest.mark.parametrize(
    ("game", "sentence"),
    [
        ("step_raises", "step of tiny_games:step_raises raised UnpicklableError: out of lives"),
        ("other_shape", "tiny_games:other_shape gave a frame of uint8 (5, 8, 1), declared uint8 (8, 8, 1)"),
        ("other_dtype", "tiny_games:other_dtype gave a frame of float64 (8, 8, 1), declared uint8 (8, 8, 1)"),
        ("no_array", "tiny_games:no_array gave a frame of type dict, declared uint8 (8, 8, 1); correct"),
        ("reward_nan", "tiny_games:reward_nan gave a reward of nan, expected a finite number (float32); correct what"),
        ("reward_inf", "tiny_games:reward_inf gave a reward of -inf, expected"),
        ("reward_huge", "tiny_games:reward_huge gave a reward of 1e+39, expected"),
        ("reward_none", "tiny_games:reward_none gave a reward of None, expected"),
        ("reward_array", "tiny_games:reward_array gave a reward of array([[0., 0., 0.], [0., 0., 0.]]), expected"),
    ],
)
def test_a_fault_of_a_running_game_is_one_sentence_and_ends_all_copies(game, sentence, in_workers, capfd):
    """The exception of the first does not pickle: fails, by hanging, if it is left to Gymnasium's queue. Rewards that
    are no finite numbers fail if they reach the learner, whose weights they would end."""
    engine = start(f"tiny_games:{game}", in_workers=in_workers)
    engine.act(np.zeros(3, np.int32))
    with pytest.raises(UsageError) as error:
        engine.act(np.zeros(3, np.int32))
    assert sentence in str(error.value)
    assert multiprocessing.active_children() == []
    engine.close()
    assert capfd.readouterr() == ("", "")


@in_both
def test_copies_with_other_spaces_are_refused(in_workers):
    with pytest.raises(UsageError, match=r"copies of tiny_games:changing differ: the first shows \(\d+, 8, 1\)"):
        start("tiny_games:changing", in_workers=in_workers)
    assert multiprocessing.active_children() == []


@in_both
def test_a_factory_that_raises_for_a_copy_leaves_nothing_behind(in_workers, capfd):
    declared = spec("tiny_games:make", ())
    with pytest.raises(UsageError, match="tiny_games:raises raised RuntimeError: no graphics card"):
        GymnasiumEngine("tiny_games:raises", (), declared, 3, 0, 200, 0, in_workers)
    assert multiprocessing.active_children() == []
    assert capfd.readouterr() == ("", "")


def test_a_process_that_dies_is_one_sentence_and_ends_the_others(capfd):
    engine = start("tiny_games:dies", in_workers=True)
    engine.act(np.zeros(3, np.int32))
    with pytest.raises(UsageError, match=r"a process that plays tiny_games:dies died.*can be resumed"):
        engine.act(np.zeros(3, np.int32))
    assert multiprocessing.active_children() == []
    engine.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("again", [False, True], ids=["then closed", "then stepped"])
def test_a_process_that_is_killed_between_steps_does_not_hang_us(again):
    engine = start(in_workers=True)
    victim = multiprocessing.active_children()[1]
    victim.kill()
    victim.join()
    if again:
        with pytest.raises(UsageError, match="died"):
            engine.act(np.zeros(3, np.int32))
    engine.close()
    assert multiprocessing.active_children() == []


def test_an_interrupt_in_the_game_is_no_fault_of_the_game():
    engine = start("tiny_games:interrupted")
    engine.act(np.zeros(3, np.int32))
    with pytest.raises(KeyboardInterrupt):
        engine.act(np.zeros(3, np.int32))
    engine.close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_from_the_terminal_or_a_scheduler_does_not_end_the_games(number):
    """It goes to all processes of the group; fails if the games die of it before the learner has saved."""
    engine = start(in_workers=True)
    for process in multiprocessing.active_children():
        os.kill(process.pid, number)
    engine.act(np.zeros(3, np.int32))
    engine.close()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
def test_a_signal_to_a_process_that_has_just_been_forked_is_no_signal_to_the_learner(monkeypatch, capfd):
    """Fails if it meets the learner's handlers before its own are set, or if signals stay blocked here or there."""
    work, handled, before = gymnasium_engine._worker, [], blocked("self")

    def signalled(*arguments):
        for number in (signal.SIGINT, signal.SIGTERM):
            os.kill(os.getpid(), number)
        assert not handled
        work(*arguments)

    monkeypatch.setattr(gymnasium_engine, "_worker", signalled)
    with handling(lambda *_: handled.append(os.getpid())):
        engine = start(in_workers=True)
        for pid in ("self", *(process.pid for process in multiprocessing.active_children())):
            assert blocked(pid) == before
        engine.act(np.zeros(3, np.int32))
        engine.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
def test_a_process_that_ends_with_its_games_open_does_not_wait_for_them():
    """Fails, by hanging, if nothing but SIGTERM is sent to the games, which do not heed it."""
    engines = []  # kept, or the games would be closed when the job is done
    other = multiprocessing.get_context("fork").Process(target=lambda: engines.append(start(in_workers=True)))
    other.start()
    other.join(60)
    ended, _ = other.exitcode, other.kill()
    assert ended == 0


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
def test_programs_that_a_game_starts_can_be_terminated():
    """Fails, by hanging, if the games ignore SIGTERM in the way that what they start inherits."""
    engine = start("tiny_games:starts_a_program", in_workers=True)
    engine.act(np.zeros(3, np.int32))
    engine.act(np.zeros(3, np.int32))
    engine.close()


def test_closing_twice_is_harmless():
    for in_workers in (False, True):
        engine = start(in_workers=in_workers)
        engine.close()
        engine.close()


PLAY = """
import os, sys, threading
folder, game = sys.argv[1:]
sys.path.insert(0, folder)
import multiprocessing
import numpy as np
from clop.rl.envs.gymnasium import GymnasiumEngine
from clop.rl.envs.gymnasium_spec import spec
def body():
    engine = GymnasiumEngine(game, (), spec(game, ()), 3, 0, 200, 0, True)
    print(*(process.pid for process in multiprocessing.active_children()), flush=True)
    threading.Timer(0.2, os.kill, (os.getpid(), 9)).start()
    while True:
        engine.act(np.zeros(3, np.int32))
other = multiprocessing.get_context("fork").Process(target=body, daemon=True)
other.start()
other.join()
"""


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux")
@pytest.mark.parametrize("game", ["make", "hangs"])
def test_games_of_a_learner_that_is_killed_end_with_it_silently(game):
    """The learner is itself a process that may have no children, as all but the first of several are.

    Fails for a game that hangs if it would have to look at its pipe to see that the learner is gone.
    """
    code = [sys.executable, "-c", PLAY, str(FOLDER), f"tiny_games:{game}"]
    with subprocess.Popen(code, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        pids = [int(pid) for pid in process.stdout.readline().split()]
        process.wait(600)
        deadline = time.monotonic() + 30
        while (left := [pid for pid in pids if running(pid)]) and time.monotonic() < deadline:
            time.sleep(0.05)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert process.stderr.read() == ""
    assert len(pids) == 3
    assert left == []


def test_games_that_a_thread_has_started_go_on_when_it_has_ended():
    """Fails if they are to end with whoever started them, which for Linux is the thread."""
    with ThreadPoolExecutor(1) as pool:
        engine = pool.submit(start, in_workers=True).result()
    for _ in range(5):
        engine.act(np.zeros(3, np.int32))
        time.sleep(0.02)
    engine.close()


def blocked(pid):
    return re.search(r"SigBlk:\s*(\w+)", Path(f"/proc/{pid}/status").read_text())[1]


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_levels_that_all_begin_alike_are_warned_of():
    assert alike_warning("a:b", [b"x", b"x", b"y"]) is None
    assert alike_warning("a:b", [b"x"]) is None
    assert "a:b begins with the same frame for 3 different seeds" in str(alike_warning("a:b", [b"x"] * 3))


@pytest.mark.parametrize(("num_levels", "count"), [(20, 4), (1, 3), (0, 2)])
def test_each_level_is_looked_at_once_to_see_whether_all_begin_alike(monkeypatch, num_levels, count):
    """Fails for four seeds where training has one level or all, of which the first would count again as the last."""
    monkeypatch.setattr("clop.rl.envs.levels.first_frame", lambda levels, level, backend: b"x")
    warning = look_alike(LevelSet("a:b", "none", num_levels=num_levels))
    assert f"the same frame for {count} different seeds" in str(warning)


@with_minigrid
def test_minigrid_is_found_by_the_first_word_of_its_id_or_by_name():
    found = spec(MULTIROOM, IMAGES)
    assert found.action_names == ("left", "right", "forward", "pickup", "drop", "toggle", "done")
    assert found.time_limit == 120  # v0 has six rooms, whatever it is called
    assert spec(MULTIROOM.replace(":", ":minigrid:"), IMAGES) == found
    with pytest.raises(UsageError, match="did you mean 'MiniGrid-MultiRoom-N4-S5-v0'"):
        spec(MULTIROOM.replace("Room", "Rum"), IMAGES)
    with pytest.raises(UsageError, match=r"shows Dict\(.* --wrapper minigrid\.wrappers:ImgObsWrapper"):
        spec(MULTIROOM, ())


@with_minigrid
def test_minigrid_plays_the_same_here_and_in_processes_of_its_own():
    game, settings = "gymnasium:MiniGrid-MultiRoom-N2-S4-v0", {"num_envs": 2, "wrappers": IMAGES}
    one, other = (play(start(game, in_workers=in_workers, **settings), 45) for in_workers in (False, True))
    assert_same(one, other)
    assert any(step[2].any() for step in one[1:])
    assert not np.array_equal(one[0][0][0], one[0][0][1])
