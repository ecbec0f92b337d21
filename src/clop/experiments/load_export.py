"""Load an agent from the folder that :mod:`clop.experiments.export` wrote."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from clop.errors import UsageError
from clop.experiments.run_folder import RunFolder
from clop.rl import methods
from clop.rl.agent import Agent
from clop.rl.config import TrainConfig
from clop.rl.envs.spec import EnvSpec
from clop.rl.exported import OnnxNetwork, required
from clop.rl.methods.base import Context, Method
from clop.rl.network import Network, slots_of

EXPORT = "export"
"""The kind of folder, in its ``config.json``."""
FORMATS = {"onnx": "policy.onnx", "safetensors": "model.safetensors"}
"""What an agent can be exported to, and the file that holds it."""


def is_export(path: Path) -> bool:
    """Whether a folder holds an export, and not a run or nothing."""
    try:
        values = json.loads((path / "config.json").read_text())
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and values.get("kind") == EXPORT


def load_export(path: Path, device: torch.device | str = "cpu") -> Agent:
    """The agent that was exported to a folder; :func:`clop.load_agent` calls this for such folders."""
    about = RunFolder(path).about()
    try:
        spec = EnvSpec(**{name: _tupled(value) for name, value in about["spec"].items()})
        config = TrainConfig.fromdict(about["config"])
        file, generator = path / FORMATS[about["format"]], torch.Generator()
        steps, notes = about["env_steps"], about["notes"]
    except (KeyError, TypeError) as error:
        raise UsageError(f"{path / 'config.json'} is damaged, or of another version of clop: {error}") from None
    if not file.exists():
        raise UsageError(f"{path} holds no {file.name}")
    model: Any = OnnxNetwork(file) if about["format"] == "onnx" else _network(config, spec, file, generator).to(device)
    if about["format"] == "onnx" and torch.device(device).type != "cpu":
        raise UsageError(f"an agent in ONNX acts on the CPU here, got {device}; export it to safetensors for a GPU")
    where = (0, steps, torch.device(device))
    return Agent(model, _Exported(notes), Context(*where, generator, "eval", model), spec)


def _network(config: TrainConfig, spec: EnvSpec, file: Path, generator: torch.Generator) -> Network:
    """The network of a run with the weights of a file; the game itself need not be installed."""
    method = methods.compose(dict(config.methods))
    settings = method.configure(config.settings)
    slots = slots_of(settings.network.encoder)
    method.fill(slots, settings)
    model = Network(settings.network, spec, slots, generator)
    try:
        model.load_state_dict(required("safetensors.torch").load_file(file))
    except RuntimeError as error:
        raise UsageError(f"{file} does not hold the weights of this network: {error}") from None
    return model


class _Exported(Method):
    """Acts as the network says; what the method had to note is on record."""

    def __init__(self, notes: Mapping[str, str | float]) -> None:
        self._notes = dict(notes)

    def notes(self) -> dict[str, str | float]:
        return self._notes


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
