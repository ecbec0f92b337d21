"""``clop export``: an agent for programs that know nothing of clop."""

import argparse
from pathlib import Path
from typing import Any

from clop.cli.flags import positive
from clop.errors import UsageError


def add_export(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "export",
        help="write a trained agent as ONNX, safetensors or a folder for a model hub",
        description="Write the agent of a run for other programs: as an ONNX graph (uint8 frames in, logits and value "
        "out), as weights in safetensors, or as a folder with a card, as the Hugging Face hub expects it. What was "
        "written is compared with the agent on frames of the game; the comparison is kept in parity.json, and the "
        "command fails unless all logits agree to 1e-5 and all most probable actions are the same.",
        epilog="examples: clop export runs/bf3 --to onnx --out bf3-onnx; clop export runs/bf3 --to hub --out bf3-hub",
    )
    parser.add_argument("run_folder", type=Path, metavar="FOLDER", help="the run, as made by clop train")
    parser.add_argument(
        "--to", required=True, choices=("onnx", "safetensors", "hub"), metavar="FORMAT", help="onnx, safetensors or hub"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="folder to write")
    parser.add_argument(
        "--frames", type=positive, default=10_000, metavar="N", help="frames to compare on (default: %(default)s)"
    )
    parser.add_argument(
        "--upload",
        metavar="OWNER/NAME",
        help="repository of the Hugging Face hub to upload the folder to (with --to hub)",
    )
    parser.set_defaults(run=_export)


def _export(arguments: argparse.Namespace) -> None:
    from clop.experiments.export import export
    from clop.experiments.hub import export_hub, upload

    if arguments.upload is not None and arguments.to != "hub":
        raise UsageError("--upload goes with --to hub")
    write = export_hub if arguments.to == "hub" else export
    settings = {} if arguments.to == "hub" else {"to": arguments.to}
    parity = write(arguments.run_folder, out=arguments.out, frames=arguments.frames, **settings)
    print(
        f"wrote {arguments.out}: on {parity.frames} frames of the game its logits differ from the agent's by at most "
        f"{parity.logits_difference:.1e}, and the most probable action on none"
    )
    if arguments.upload is not None:
        print(f"uploaded to {upload(arguments.out, arguments.upload)}")
