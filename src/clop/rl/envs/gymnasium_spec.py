"""Gymnasium's environments, and a user's own, by name: found, made, and what they show and take.

Other people's code runs here; whatever it raises becomes a sentence. Gymnasium is imported when it is used.
"""

import contextlib
import difflib
import enum
import functools
import importlib
import importlib.util
import inspect
import pkgutil
import re
import sys
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from clop.errors import UsageError
from clop.rl.envs.spec import EnvSpec

if TYPE_CHECKING:
    from gymnasium import Env

_ID = "gymnasium:"
_MAX_CHANNELS = 16
_MINIGRID_WRAPPERS = "--wrapper minigrid.wrappers:RGBImgObsWrapper --wrapper minigrid.wrappers:ImgObsWrapper"


@functools.lru_cache(maxsize=16)
def spec(game: str, wrappers: tuple[str, ...]) -> EnvSpec:
    """What a game shows and takes, from one copy that is made to look.

    Args:
        game: ``gymnasium:ID``, ``gymnasium:package:ID`` where the package registers the ID when imported, or
            ``module:function`` for a function ``(render_mode=None) -> gymnasium.Env``.
        wrappers: ``module:Class``, the innermost first.
    """
    env = make(game, wrappers)
    try:
        return spec_of(env, game)
    finally:
        close_quietly(env)


def make(game: str, wrappers: tuple[str, ...]) -> "Env[Any, Any]":
    """One copy of a game, in its wrappers."""
    import gymnasium

    if game.startswith(_ID):
        name = _registered(game.removeprefix(_ID))
        with blaming(game), warnings.catch_warnings():
            # Whoever names an older version means it: results are compared by version. We check what we need ourselves,
            # and the checker's advice would be repeated for each copy.
            warnings.filterwarnings("ignore", ".* is out of date", DeprecationWarning)
            env = _as_env(gymnasium.make(name, disable_env_checker=True), game)
    else:
        function = _found(game, "game")
        with blaming(game):
            env = _as_env(function(render_mode=None) if _takes(function, "render_mode") else function(), game)
    for name in wrappers:
        wrapper = _found(name, "wrapper")
        with blaming(f"wrapper {name} of {game}"):
            env = _as_env(wrapper(env), name)
    return env


def _as_env(made: object, source: str) -> "Env[Any, Any]":
    import gymnasium

    if not isinstance(made, gymnasium.Env):
        raise UsageError(f"{source} gave an object of type {type(made).__name__}, expected a gymnasium.Env")
    return made


def _registered(name: str) -> str:
    """The ID of a registered environment. Packages register theirs when imported, which is tried by the ID's first
    word."""
    import gymnasium

    package, colon, env_id = name.rpartition(":")
    if colon:
        _imported(package, "package")
    else:
        package = re.split("[-/]", env_id)[0].lower()
        if env_id not in gymnasium.registry and package.isidentifier() and importlib.util.find_spec(package):
            _imported(package, "package")
    if env_id not in gymnasium.registry:
        hint = _near(env_id, map(str, gymnasium.registry)) or f"name the package that has it: {_ID}PACKAGE:{env_id}"
        raise UsageError(f"Gymnasium knows no environment {env_id!r}; {hint}")
    return env_id


def _found(path: str, what: str) -> Callable[..., Any]:
    """What is called ``module:name``."""
    module_name, _, name = path.partition(":")
    if not name.isidentifier() or not all(part.isidentifier() for part in module_name.split(".")):
        shape = "module:Class" if what == "wrapper" else f"module:function or {_ID}ID"
        raise UsageError(f"a {what} is given as {shape}, got {path!r}")
    module = _imported(module_name, what)
    found = getattr(module, name, None)
    if found is None:
        known = [name for name, value in vars(module).items() if callable(value)]
        hint = _near(name, known) or "look for its name in the module"
        raise UsageError(f"{module_name} has no {name!r} for the {what} {path}; {hint}")
    if not callable(found):
        raise UsageError(f"the {what} {path} is of type {type(found).__name__}, expected a function or class")
    return found


def _imported(name: str, what: str) -> Any:
    # As with python -m: a file beside the user, who starts us by a script that lies elsewhere.
    if not {"", here := str(Path.cwd())} & set(sys.path):
        sys.path.append(here)
    try:
        with blaming(f"importing {name}"):
            return importlib.import_module(name)
    except UsageError as error:
        missing = getattr(error.__cause__, "name", None)
        if not isinstance(error.__cause__, ModuleNotFoundError) or not f"{name}.".startswith(f"{missing}."):
            raise
        parent = name.rpartition(".")[0]
        # The parent is there if it is not what is missing.
        folders = importlib.import_module(parent).__path__ if parent and missing == name else None
        siblings = [f"{parent}.{found.name}" if folders else found.name for found in pkgutil.iter_modules(folders)]
        hint = _near(str(missing), siblings) or f"install it, or start clop in the folder that holds {missing}"
        raise UsageError(f"there is no module {missing!r} for the {what}; {hint}") from None


def _near(name: str, known: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"did you mean {near[0]!r}?" if near else None


def _takes(function: Callable[..., Any], name: str) -> bool:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # of some that are written in C
        return False
    return any(parameter.name == name or parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


@contextlib.contextmanager
def blaming(whom: str) -> Iterator[None]:
    """Other people's code runs in here; what it raises, even a wish to exit, becomes a sentence."""
    try:
        yield
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"{whom} raised {described(error)}; correct that, or run it without clop to see where"
        ) from error


def described(error: BaseException) -> str:
    """An exception in a few words."""
    text = shortened(error, 300)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shortened(value: object, width: int = 120) -> str:
    """One line."""
    return textwrap.shorten(str(value), width, placeholder=" …")


def close_quietly(env: "Env[Any, Any]") -> None:
    with contextlib.suppress(Exception):  # the game is over, and nothing can be lost any more
        env.close()


def spec_of(env: "Env[Any, Any]", game: str) -> EnvSpec:
    """What an environment shows and takes, or a :class:`UsageError` if we cannot learn from it."""
    from gymnasium.spaces import Box, Discrete

    with blaming(game):
        shows, takes = env.observation_space, env.action_space
    if advice := _advice_on_frames(shows, env):
        raise UsageError(
            f"{game} shows {shortened(shows)}, and clop learns from uint8 images (H, W, C) with 1 to "
            f"{_MAX_CHANNELS} channels; {advice}"
        )
    if not isinstance(takes, Discrete):
        advice = (
            "for continuous actions, train clop.sb3.ClopCnnPolicy with Stable-Baselines3: see docs/recipes.md"
            if isinstance(takes, Box)
            else "make them one Discrete by a wrapper: --wrapper module:Class"
        )
        raise UsageError(f"{game} takes {shortened(takes)}, and clop trains Discrete actions only; {advice}")
    height, width, channels = shows.shape or ()
    first, count = int(takes.start), int(takes.n)
    with blaming(game):
        names, time_limit = _action_names(env, first, count), _time_limit(env)
    return EnvSpec((height, width, channels), count, 0, names, time_limit, first)


def _advice_on_frames(space: Any, env: "Env[Any, Any]") -> str | None:
    """What to do about observations that are no images, None if they are."""
    from gymnasium.spaces import Box, Dict, Tuple

    by_wrapper = "by a wrapper: --wrapper module:Class"
    if isinstance(space, Dict | Tuple):
        if any(kind.__module__.partition(".")[0] == "minigrid" for kind in type(env.unwrapped).__mro__):
            return f"draw and pick the image by {_MINIGRID_WRAPPERS}"
        return f"pick out the image {by_wrapper}"
    if not isinstance(space, Box) or len(space.shape) < 2 or len(space.shape) > 3:
        return f"show an image {by_wrapper}"
    if len(space.shape) == 2:
        return f"add a channel axis at the end {by_wrapper}"
    if not 1 <= space.shape[2] <= _MAX_CHANNELS:
        if 1 <= space.shape[0] <= _MAX_CHANNELS:
            return f"move the channels last {by_wrapper}"
        return f"show fewer channels {by_wrapper}"
    if space.dtype != np.uint8:
        return f"make it uint8 from 0 to 255 {by_wrapper}"
    return None


def _action_names(env: "Env[Any, Any]", first: int, count: int) -> tuple[str, ...]:
    """As MiniGrid has them, or as Atari's games do."""
    game: Any = env.unwrapped
    actions = getattr(game, "actions", None)
    if isinstance(actions, enum.EnumMeta):
        names: dict[object, str] = {action.value: action.name for action in actions}  # type: ignore[var-annotated]
        if names.keys() == set(range(first, first + count)):
            return tuple(names[action] for action in range(first, first + count))
    if callable(meanings := getattr(game, "get_action_meanings", None)):
        words = tuple(map(str, meanings()))
        if len(words) == count:
            return words
    return ()


def _time_limit(env: "Env[Any, Any]") -> int | None:
    game: Any = env.unwrapped
    for limit in (getattr(game.spec, "max_episode_steps", None), getattr(game, "max_steps", None)):
        if isinstance(limit, int) and limit > 0:
            return limit
    return None
