"""The encoders by name. A new one is a file beside this and a line here."""

from clop.errors import UsageError, unknown_name
from clop.rl.encoders.base import SMALLEST_MAP, Encoder, Shape
from clop.rl.encoders.impala import Impala
from clop.rl.encoders.nature import Nature
from clop.rl.encoders.small import Small
from clop.rl.settings import NetworkConfig

ENCODERS: dict[str, type[Encoder]] = {"impala": Impala, "nature": Nature, "small": Small}


def find_encoder(name: str) -> type[Encoder]:
    if name not in ENCODERS:
        raise UsageError(unknown_name("network.encoder", name, ENCODERS))
    return ENCODERS[name]


def check_map(config: NetworkConfig, input_shape: Shape) -> None:
    """A :class:`UsageError` for frames (C, H, W) that the encoder leaves too little of."""
    *_, (_, rows, columns) = find_encoder(config.encoder).shapes(input_shape, config.width)
    if min(rows, columns) < SMALLEST_MAP:
        _, height, width = input_shape
        raise UsageError(
            f"frames of {height}×{width} leave a map of {rows}×{columns} behind the encoder {config.encoder}, which "
            f"must be {SMALLEST_MAP}×{SMALLEST_MAP} at least; enlarge them with a wrapper"
        )
