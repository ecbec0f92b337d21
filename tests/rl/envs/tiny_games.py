"""Games of a few pixels that can be told to misbehave; imported by name, also in the processes that play them."""

import os
import subprocess
import time
from enum import IntEnum

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple

LENGTH = 3
SHAPE = (8, 8, 1)


class Actions(IntEnum):
    wait = 0
    left = 1
    right = 2


class Tiny(gymnasium.Env):
    """The upper half of a frame shows the level, the lower half the steps; the reward is the action.

    It draws into one array, as a game may that saves memory. Settings say how an episode ends and what goes wrong at
    the second step.
    """

    metadata = {"render_modes": []}  # noqa: RUF012
    observation_space = Box(0, 255, SHAPE, np.uint8)
    action_space = Discrete(3)
    actions = Actions
    max_steps = 7

    def __init__(self, ending="terminated", fault=None, told=None):
        self.ending, self.fault, self.told = ending, fault, told
        self.frame = np.zeros(SHAPE, np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.frame[:4] = self.np_random.integers(0, 256, (4, *SHAPE[1:]))
        self.frame[4:] = self.steps = 0
        return self.frame, {}

    def step(self, action):
        assert self.action_space.contains(action), action
        self.steps += 1
        self.frame[4:] = self.steps
        frame = self.frame
        if self.steps == 2 and self.fault is not None:
            frame = self.fault(frame)
        ended = self.steps == LENGTH
        terminated, truncated = ended and self.ending in ("terminated", "both"), ended and self.ending != "terminated"
        info = {"anything": lambda: None}  # nothing that a pipe could carry
        if ended and self.told is not None:
            info |= self.told
        return frame, float(action), terminated, truncated, info


def first_frame(level):
    frame = np.zeros(SHAPE, np.uint8)
    frame[:4] = gymnasium.utils.seeding.np_random(int(level))[0].integers(0, 256, (4, *SHAPE[1:]))
    return frame


def make(render_mode=None):
    return Tiny()


def make_without_arguments():
    return Tiny()


def truncated():
    return Tiny("truncated")


def both():
    return Tiny("both")


def says_success():
    return Tiny("truncated", told={"is_success": np.True_})


def says_failure():
    return Tiny(told={"success": False})


class OneBased(Tiny):
    action_space = Discrete(3, start=1)


class LikeMiniGrid(Tiny):
    __module__ = "minigrid.minigrid_env"
    observation_space = Dict({"image": Box(0, 255, SHAPE, np.uint8)})


def raises():
    raise RuntimeError("no\ngraphics card")


def wants_to_exit():
    raise SystemExit("bye")


def not_an_env():
    return 3


def _fail(frame):
    class UnpicklableError(Exception):
        pass

    raise UnpicklableError("out of\nlives")


def step_raises():
    return Tiny(fault=_fail)


def interrupted():
    def fault(frame):
        raise KeyboardInterrupt

    return Tiny(fault=fault)


def dies():
    return Tiny(fault=lambda frame: os._exit(3))


def hangs():
    return Tiny(fault=lambda frame: time.sleep(3600))


def starts_a_program():
    def fault(frame):
        with subprocess.Popen(["sleep", "30"]) as program:
            program.terminate()
        assert program.returncode != 0, "it slept to its end"
        return frame

    return Tiny(fault=fault)


def other_shape():
    return Tiny(fault=lambda frame: frame[:5])


def other_dtype():
    return Tiny(fault=lambda frame: frame / 255)


def no_array():
    return Tiny(fault=lambda frame: {"image": frame})


def _rewarding(reward):
    class Rewarding(Tiny):
        def step(self, action):
            frame, usual, *others = super().step(action)
            return frame, reward if self.steps == 2 else usual, *others

    return Rewarding


reward_nan = _rewarding(float("nan"))
reward_inf = _rewarding(float("-inf"))
reward_huge = _rewarding(1e39)
reward_none = _rewarding(None)
reward_array = _rewarding(np.zeros((2, 3)))


made = 0


def changing():
    """Each copy has one more row than the one before."""
    global made
    made += 1
    env = Tiny()
    env.observation_space = Box(0, 255, (8 + made, 8, 1), np.uint8)
    return env


def _showing(space):
    def make():
        env = Tiny()
        env.observation_space = space
        return env

    return make


def _taking(space):
    def make():
        env = Tiny()
        env.action_space = space
        return env

    return make


IMAGE = Box(0, 255, (8, 8, 3), np.uint8)
shows_dict = _showing(Dict({"image": IMAGE}))
shows_tuple = _showing(Tuple([IMAGE]))
shows_gray = _showing(Box(0, 255, (8, 8), np.uint8))
shows_floats = _showing(Box(0, 1, (8, 8, 3), np.float32))
shows_channels_first = _showing(Box(0, 255, (3, 64, 64), np.uint8))
shows_many_channels = _showing(Box(0, 255, (64, 64, 17), np.uint8))
shows_numbers = _showing(Box(-1, 1, (4,), np.float32))
shows_discrete = _showing(Discrete(5))
takes_numbers = _taking(Box(-1, 1, (2,), np.float32))
takes_pairs = _taking(MultiDiscrete([2, 3]))


class Twice(gymnasium.ObservationWrapper):
    """Two channels from one."""

    def __init__(self, env):
        super().__init__(env)
        height, width, channels = env.observation_space.shape
        self.observation_space = Box(0, 255, (height, width, 2 * channels), np.uint8)

    def observation(self, frame):
        return np.concatenate([frame, frame], axis=2)


class Fifth(Twice):
    """Cuts the frame where :class:`Twice` doubled it, so the order matters."""

    def __init__(self, env):
        super().__init__(env)
        assert env.observation_space.shape[2] == 2, "expected two channels"
        self.observation_space = Box(0, 255, (5, 8, 2), np.uint8)

    def observation(self, frame):
        return frame[:5]


constant = 3
