"""Procgen's own library, called directly.

The wheel of procgen (or its rebuilds for newer Pythons, procgen-mirror and procgen2) holds one shared library with
the C interface of gym3's ``libenv.h``. Its Python side adds gym, which prints a notice when imported, gym3, and
limits on the versions of numpy and others that the library itself does not need. So the Python side is never
imported: the library is found by path and writes frames, rewards and flags straight into our arrays.

What the library dislikes, it answers by ending the process. Callers must hand in checked values only.
"""

import ctypes
import functools
import importlib.util
import os
import struct
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from clop.errors import UsageError
from clop.rl.envs.spec import EnvSpec
from clop.rl.games import find_game

_BUTTONS = (
    *("left down", "left", "left up", "down", "nothing", "up", "right down", "right", "right up"),
    *("D", "A", "W", "S", "Q", "E"),
)
"""What the actions press, the same in every game; the letters are the games' special buttons, such as fire."""
_LIBRARIES = ("libenv.so", "libenv.dylib", "env.dll")
_FRAME = (64, 64, 3)
_UINT8, _INT32 = 1, 2  # libenv_dtype
_MODES = {"easy": 0, "hard": 1}  # DistributionMode
_MAX_STATE = 1 << 20  # bytes; 57 kB is the largest seen, in coinrun
_END_OF_STATE = struct.pack("<I", 0xCAFECAFE)


class _Option(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char * 128),
        ("dtype", ctypes.c_int),
        ("count", ctypes.c_int),
        ("data", ctypes.c_void_p),
    )


class _Options(ctypes.Structure):
    _fields_ = (("items", ctypes.POINTER(_Option)), ("count", ctypes.c_int))


class _Buffers(ctypes.Structure):
    _fields_ = (
        ("ob", ctypes.POINTER(ctypes.c_void_p)),
        ("rew", ctypes.c_void_p),
        ("first", ctypes.c_void_p),
        ("info", ctypes.POINTER(ctypes.c_void_p)),
        ("ac", ctypes.POINTER(ctypes.c_void_p)),
    )


def spec(game: str) -> EnvSpec:
    """What the games show and take."""
    return EnvSpec(_FRAME, len(_BUTTONS), _BUTTONS.index("nothing"), _BUTTONS, find_game(game).time_limit)


def data_folder() -> Path | None:
    """Where the library and the pictures of the games are, or None if procgen is not installed."""
    spec = importlib.util.find_spec("procgen")  # looks, without importing
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        data = Path(folder) / "data"
        if any((data / "prebuilt" / name).is_file() for name in _LIBRARIES):
            return data
    return None


@functools.cache
def _library() -> ctypes.CDLL:
    data = data_folder()
    assert data is not None
    path = next(path for name in _LIBRARIES if (path := data / "prebuilt" / name).is_file())
    library = ctypes.CDLL(str(path))
    handle = ctypes.c_void_p
    signatures: dict[str, tuple[type | None, tuple[type, ...]]] = {
        "libenv_make": (handle, (ctypes.c_int, _Options)),
        "libenv_set_buffers": (None, (handle, ctypes.POINTER(_Buffers))),
        "libenv_observe": (None, (handle,)),
        "libenv_act": (None, (handle,)),
        "libenv_close": (None, (handle,)),
        "get_state": (ctypes.c_int, (handle, ctypes.c_int, ctypes.c_char_p, ctypes.c_int)),
        "set_state": (None, (handle, ctypes.c_int, ctypes.c_char_p, ctypes.c_int)),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class ProcgenEngine:
    """Games that step together; an :class:`~clop.rl.envs.spec.Engine`."""

    can_save: ClassVar[bool] = True

    cut_off: ClassVar[tuple[()]] = ()  # a time limit is part of these games, and arrives as an end

    def __init__(
        self, game: str, num_envs: int, mode: str, start_level: int, num_levels: int, seed: int, threads: int
    ) -> None:
        data = data_folder()
        assert data is not None, "procgen is not installed"
        self.frames = np.zeros((num_envs, *_FRAME), np.uint8)
        self.rewards = np.zeros(num_envs, np.float32)
        self.level_seeds = np.zeros(num_envs, np.int32)
        self.ended_level_seeds = np.zeros(num_envs, np.int32)
        self._firsts = np.zeros(num_envs, np.uint8)
        self._completed = np.zeros(num_envs, np.uint8)
        self._actions = np.zeros(num_envs, np.int32)
        self._state_header = struct.pack("<ii", 0, len(game)) + game.encode()  # version of the format, name
        options: dict[str, str | bool | int] = {
            "env_name": game,
            "distribution_mode": _MODES[mode],
            "start_level": start_level,
            "num_levels": num_levels,
            "rand_seed": seed,
            "num_threads": threads,
            "num_actions": len(_BUTTONS),
            "resource_root": f"{data / 'assets'}{os.sep}",
            # What procgen's Python side sets by default.
            "center_agent": True,
            "use_backgrounds": True,
            "use_generated_assets": False,
            "use_monochrome_assets": False,
            "restrict_themes": False,
            "use_sequential_levels": False,
            "paint_vel_info": False,
            "render_human": False,
            "debug_mode": 0,
        }
        library = _library()
        self._handle: int | None = library.libenv_make(num_envs, _as_options(options))
        self._close = weakref.finalize(self, _close, library, self._handle, os.getpid())
        library.libenv_set_buffers(
            self._handle,
            ctypes.byref(
                _Buffers(
                    ob=_rows(self.frames),
                    rew=self.rewards.ctypes.data,
                    first=self._firsts.ctypes.data,
                    info=_rows(self.ended_level_seeds, self._completed, self.level_seeds),  # in the library's order
                    ac=_rows(self._actions),
                )
            ),
        )
        library.libenv_observe(self._handle)

    @property
    def dones(self) -> NDArray[np.bool_]:
        return self._firsts.view(np.bool_)

    @property
    def completed(self) -> NDArray[np.bool_]:
        return self._completed.view(np.bool_)

    def act(self, actions: NDArray[np.int32]) -> None:
        self._actions[:] = actions
        library = _library()
        library.libenv_act(self._handle)
        library.libenv_observe(self._handle)  # waits for the threads, if there are any

    def state(self) -> list[bytes]:
        library, buffer, states = _library(), ctypes.create_string_buffer(_MAX_STATE), []
        for env in range(len(self.rewards)):
            size = library.get_state(self._handle, env, buffer, _MAX_STATE)
            states.append(ctypes.string_at(buffer, size))
        return states

    def restore(self, states: Sequence[bytes]) -> None:
        for state in states:
            if not (state.startswith(self._state_header) and state.endswith(_END_OF_STATE)):
                raise UsageError("the saved games are damaged or of another version of procgen")
        for env, state in enumerate(states):
            _library().set_state(self._handle, env, state, len(state))

    def close(self) -> None:
        self._handle = None
        self._close()


def _as_options(options: dict[str, str | bool | int]) -> _Options:
    """Options as the library reads them; it copies what it keeps."""
    items = (_Option * len(options))()
    values: list[object] = []  # ctypes does not keep alive what only an address refers to
    for item, (name, value) in zip(items, options.items(), strict=True):
        item.name = name.encode()
        if isinstance(value, str):
            text = value.encode()
            data: ctypes.Array[ctypes.c_char] | ctypes.c_uint8 | ctypes.c_int32 = ctypes.create_string_buffer(text)
            item.dtype, item.count = _UINT8, len(text)
        elif isinstance(value, bool):
            data = ctypes.c_uint8(value)
            item.dtype, item.count = _UINT8, 1
        else:
            data = ctypes.c_int32(value)
            item.dtype, item.count = _INT32, 1
        item.data = ctypes.addressof(data)
        values.append(data)
    result = _Options(items, len(options))
    result.keep_alive = values
    return result


def _rows(*arrays: NDArray[np.generic]) -> "ctypes.Array[ctypes.c_void_p]":
    """The address of each env's part, array after array."""
    addresses = [array.ctypes.data + row * array.strides[0] for array in arrays for row in range(len(array))]
    return (ctypes.c_void_p * len(addresses))(*addresses)


def _close(library: ctypes.CDLL, handle: int, pid: int) -> None:
    # A forked child has the games but not their threads, and waiting for these would never end.
    if os.getpid() == pid:
        library.libenv_close(handle)
