"""Export an agent to a folder that others can read.

``config.json``    what it was trained with, what it takes and what it returns
``policy.onnx``    the network with its preprocessing, or
``model.safetensors``  its weights by name
``parity.json``    how far the export is from which agent, and by which command, code and machine that was found
"""

import dataclasses
from pathlib import Path
from typing import Any

from clop import machine
from clop.errors import UsageError, unknown_name
from clop.experiments.agents import KIND, load_agent
from clop.experiments.load_export import EXPORT, FORMATS, load_export
from clop.experiments.run_folder import RunFolder, origin
from clop.files import write_json
from clop.rl.agent import Agent
from clop.rl.build import split_levels
from clop.rl.config import TrainConfig
from clop.rl.exported import Parity, compare, required, write_onnx

FRAMES = 10_000
"""On which an export is compared with its agent."""


def export(run: Path | str, to: str, out: Path | str, *, frames: int = FRAMES) -> Parity:
    """Write the agent of a run to a folder, and compare what was written with it.

    Args:
        run: The folder of the run; its last checkpoint is taken.
        to: One of :data:`FORMATS`.
        out: A folder that does not exist yet, or is empty.
        frames: Frames of the game on which both are asked.
    """
    run, out = Path(run), Path(out)
    if to not in FORMATS:
        raise UsageError(unknown_name("format", to, FORMATS))
    if frames < 1:
        raise UsageError(f"frames must be at least 1, got {frames}")
    folder = RunFolder.open(run, KIND)
    config, agent = folder.read_config(TrainConfig.fromdict), load_agent(run)
    if agent.uses_batch_statistics:
        raise UsageError("what this agent makes of a frame depends on the frames beside it; it cannot be exported")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} is not empty and nothing in it will be overwritten; name another folder")
    out.mkdir(parents=True, exist_ok=True)
    if to == "onnx":
        write_onnx(agent, out / FORMATS[to])
    else:
        tensors = {name: tensor.cpu().contiguous() for name, tensor in agent.model.state_dict().items()}
        required("safetensors.torch").save_file(tensors, out / FORMATS[to], {"format": "pt"})
    write_json(out / "config.json", _about(folder, config, agent, to))
    exported = load_export(out)
    with exported.playing(0):
        parity = compare(agent, exported, split_levels(config, "train"), frames, backend=config.backend)
    versions = {name: machine.version(name) for name in ("torch", "onnx", "onnxruntime", "safetensors")}
    record = {"passed": parity.passed, **dataclasses.asdict(parity), "agent": _which(folder, config, agent)}
    write_json(out / "parity.json", record | {"format": to, "versions": versions, **origin()})
    if not parity.passed:
        raise UsageError(
            f"the export does not act as the agent does: logits differ by up to {parity.logits_difference:.1e}, the "
            f"most probable action on {parity.greedy_differences} of {parity.frames} frames ({out / 'parity.json'}); "
            "an agent whose method draws or keeps a mask while acting cannot be exported"
        )
    return parity


def _which(folder: RunFolder, config: TrainConfig, agent: Agent) -> dict[str, Any]:
    """The agent that was exported, and where it comes from."""
    run = folder.about()
    return {
        "game": config.game,
        "method": config.method,
        "preset": config.preset_name,
        "seed": config.seed,
        "env_steps": agent.ctx.env_steps,
        "command": run["command"],
        "commit": run["commit"],
    }


def _about(folder: RunFolder, config: TrainConfig, agent: Agent, to: str) -> dict[str, Any]:
    run = folder.about()
    height, width, channels = agent.spec.obs_shape
    return {
        "version": run["version"],
        "kind": EXPORT,
        "format": to,
        "file": FORMATS[to],
        "input": {"name": "frames", "dtype": "uint8", "shape": ["batch", height, width, channels]},
        "outputs": {"logits": ["batch", agent.spec.num_actions], "value": ["batch"]},
        "spec": dataclasses.asdict(agent.spec),
        "env_steps": agent.ctx.env_steps,
        "notes": agent.notes(),
        "config": config.asdict(),
        "command": run["command"],
        "commit": run["commit"],
    }
