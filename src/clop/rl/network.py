"""The IMPALA network of the Procgen agents, with named slots that a method may fill.

Espeholt et al. (2018) as in Cobbe et al. (2020): three blocks of a convolution, a pool and two residual pairs, then a
dense layer of 256 and linear heads. The residual adds its untouched input, where some reference code adds a rectified
one (``skip_relu``).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clop.errors import UsageError, unknown_name
from clop.rl.games import NUM_ACTIONS

SLOTS = ("input", "block1", "block2", "block3", "trunk_out", "actor_in", "critic_in", "neck", "adv_head")
TOPOLOGIES = ("shared", "split", "decoupled")
ENCODERS = ("impala", "small")
NORMS = ("none", "block", "all")
STATISTICS = ("running", "batch")
DENSE_INITS = ("xavier", "orthogonal")
WIDTHS = (1, 2, 4)
FEATURES = 256
MAP_CHANNELS, MAP_SIZE = 32, 8  # of the map before the dense layer, at width 1

ConvPost = Callable[[str, int, int], nn.Module | None]
"""What follows a convolution, given its name, channels and map size; None for nothing."""


@dataclass(frozen=True)
class NetworkConfig:
    """The shape of the network."""

    encoder: str = "impala"
    """``impala``, or ``small``: three convolutions of stride 2 and a residual pair, seven times as fast."""
    width: int = 1
    """Multiplier of the convolutions' channels: 1, 2 or 4."""
    topology: str = "shared"
    """``shared``: one trunk and one dense layer. ``split``: a dense layer for the policy and one for the value.
    ``decoupled``: a network each."""
    norm: str = "none"
    """Batch norm after no convolution, after the first of each block (``block``), or after each (``all``)."""
    norm_statistics: str = "running"
    """What batch norm goes by in evaluation mode: ``running`` averages, or the frames at hand (``batch``)."""
    impoola: bool = False
    """Whether a global average pool stands before the dense layer."""
    dense_init: str = "xavier"
    """Of the dense layer: ``xavier`` uniform, or ``orthogonal`` with gain sqrt(2)."""
    skip_relu: bool = False
    """Whether residual pairs add their rectified input, as a ReLU in place does in the code of DrAC, DAAC and IDAAC."""

    @property
    def uses_batch_statistics(self) -> bool:
        """Whether what it makes of a frame depends on the frames beside it, in evaluation mode too."""
        return self.norm != "none" and self.norm_statistics == "batch"

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise UsageError(f"the width of the network is one of {WIDTHS}, got {self.width}")
        choices = {
            "encoder": ENCODERS,
            "topology": TOPOLOGIES,
            "norm": NORMS,
            "norm_statistics": STATISTICS,
            "dense_init": DENSE_INITS,
        }
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise UsageError(unknown_name(name, getattr(self, name), known))


@dataclass
class Output:
    """What one pass returns; what was not asked for is None."""

    logits: Tensor | None = None  # (N, actions)
    value: Tensor | None = None  # (N,)
    features: Tensor | None = None  # (N, 256), of the policy
    aux: dict[str, Tensor] = field(default_factory=dict)
    trunk_map: Tensor | None = None  # (N, C, H, W), what the policy's branch starts from

    def cpu(self) -> "Output":
        """Policy and value, which is all that is read of it while acting, on the CPU."""
        logits, value = (None if tensor is None else tensor.cpu() for tensor in (self.logits, self.value))
        return Output(logits, value)

    @property
    def known_value(self) -> Tensor:
        assert self.value is not None, "the value was not asked for"
        return self.value

    @property
    def known_logits(self) -> Tensor:
        assert self.logits is not None, "the policy was not asked for"
        return self.logits

    def log_prob(self, actions: Tensor) -> Tensor:
        """(N,)"""
        return self.known_logits.log_softmax(-1).gather(-1, actions[:, None]).squeeze(-1)

    def entropy(self) -> Tensor:
        """(N,)"""
        log_probs = self.known_logits.log_softmax(-1)
        return -(log_probs.exp() * log_probs).sum(-1)

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """One action each, (N,). By Gumbel's trick, whose noise is drawn on the generator's device."""
        logits = self.known_logits
        device = logits.device if generator is None else generator.device
        uniform = torch.rand(logits.shape, generator=generator, device=device).to(logits.device, non_blocking=True)
        return (logits - (-uniform.log()).log()).argmax(-1)


class Residual(nn.Module):
    """``x + conv(relu(conv(relu(x))))``; with ``skip_relu`` it is ``relu(x)`` that is added."""

    def __init__(self, name: str, channels: int, size: int, post: "_Post") -> None:
        super().__init__()
        self.conv1 = post.convolution(f"{name}.conv1", channels, channels, size)
        self.conv2 = post.convolution(f"{name}.conv2", channels, channels, size)
        self.skip_relu = post.config.skip_relu

    def forward(self, x: Tensor) -> Tensor:
        rectified = F.relu(x)
        return (rectified if self.skip_relu else x) + self.conv2(F.relu_(self.conv1(rectified)))


class Trunk(nn.Module):
    """Frames to the map before the dense layer: (N, 3, 64, 64) in [0, 1] to (N, 32 * width, 8, 8)."""

    def __init__(self, width: int, slots: Mapping[str, nn.Module], post: "_Post", size: int = 64) -> None:
        super().__init__()
        self.input = slots.get("input", nn.Identity())
        self.block1 = _block("block1", 3, 16 * width, size, post)
        self.block1_out = slots.get("block1", nn.Identity())
        self.block2 = _block("block2", 16 * width, 32 * width, size // 2, post)
        self.block2_out = slots.get("block2", nn.Identity())
        self.block3 = _block("block3", 32 * width, 32 * width, size // 4, post)
        self.block3_out = slots.get("block3", nn.Identity())
        self.out = slots.get("trunk_out", nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        x = self.input(x)
        x = self.block1_out(self.block1(x))
        x = self.block2_out(self.block2(x))
        # The last slot sees the map after the final ReLU: permuted or not, that is the same.
        x = self.block3_out(F.relu_(self.block3(x)))
        return self.out(x)


class SmallTrunk(nn.Module):
    """Three 3×3 convolutions of stride 2 and one residual pair: the same map as :class:`Trunk`, for a CPU."""

    def __init__(self, width: int, slots: Mapping[str, nn.Module], post: "_Post", size: int = 64) -> None:
        super().__init__()
        self.input = slots.get("input", nn.Identity())
        self.conv1 = post.convolution("block1.conv", 3, 16 * width, size // 2, stride=2)
        self.block1_out = slots.get("block1", nn.Identity())
        self.conv2 = post.convolution("block2.conv", 16 * width, 32 * width, size // 4, stride=2)
        self.block2_out = slots.get("block2", nn.Identity())
        self.conv3 = post.convolution("block3.conv", 32 * width, 32 * width, size // 8, stride=2)
        self.residual = Residual("block3.residual1", 32 * width, size // 8, post)
        self.block3_out = slots.get("block3", nn.Identity())
        self.out = slots.get("trunk_out", nn.Identity())

    def forward(self, x: Tensor) -> Tensor:
        x = self.block1_out(F.relu_(self.conv1(self.input(x))))
        x = self.block2_out(F.relu_(self.conv2(x)))
        return self.out(self.block3_out(F.relu_(self.residual(self.conv3(x)))))


_TRUNKS = {"impala": Trunk, "small": SmallTrunk}


def _block(name: str, inputs: int, channels: int, size: int, post: "_Post") -> nn.Module:
    return nn.Sequential(
        post.convolution(f"{name}.conv", inputs, channels, size),
        nn.MaxPool2d(3, stride=2, padding=1),
        Residual(f"{name}.residual1", channels, size // 2, post),
        Residual(f"{name}.residual2", channels, size // 2, post),
    )


class Dense(nn.Linear):
    """A map, flattened or averaged over its positions, to numbers that are not rectified yet."""

    def __init__(self, config: NetworkConfig, outputs: int) -> None:
        channels = MAP_CHANNELS * config.width
        super().__init__(channels if config.impoola else channels * MAP_SIZE**2, outputs)
        self.impoola = config.impoola
        if config.dense_init == "orthogonal":
            nn.init.orthogonal_(self.weight, 2**0.5)
        else:
            nn.init.xavier_uniform_(self.weight)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.mean((2, 3)) if self.impoola else x.flatten(1))


class Neck(nn.Module):
    """A map to 256 features: dense and rectified."""

    def __init__(self, config: NetworkConfig) -> None:
        super().__init__()
        self.dense = Dense(config, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.dense(x))


class Network(nn.Module):
    """Policy and value on game frames.

    Args:
        config: Its shape.
        slots: Modules by slot, for those that are not empty.
        conv_post: What follows the convolutions besides the norm of the config, asked once for each of the 15.

    Shape:
        - input: uint8 (N, 64, 64, 3) as the games give it, or float (N, 3, 64, 64) in [0, 1]
    """

    def __init__(
        self, config: NetworkConfig, slots: Mapping[str, nn.Module] | None = None, conv_post: Iterable[ConvPost] = ()
    ) -> None:
        super().__init__()
        slots = slots or {}
        assert set(slots) <= set(SLOTS), f"no such slot: {set(slots) - set(SLOTS)}"
        post = _Post(config, tuple(conv_post))
        self.config = config
        trunk = _TRUNKS[config.encoder]
        self.trunk = trunk(config.width, slots, post)
        self.actor_in = slots.get("actor_in", nn.Identity())
        self.critic_in = slots.get("critic_in", nn.Identity())

        self.neck = slots["neck"] if "neck" in slots else Neck(config)
        self.value_neck = Neck(config) if config.topology != "shared" else None
        self.value_trunk = trunk(config.width, {}, post) if config.topology == "decoupled" else None
        self.policy_head = linear_head(FEATURES, NUM_ACTIONS, gain=0.01)
        self.value_head = linear_head(FEATURES, 1, gain=1.0)
        self.adv_head = slots.get("adv_head")
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor, *, policy: bool = True, value: bool = True, actions: Tensor | None = None) -> Output:
        """Policy, value or both; with ``actions``, also the predicted advantage of each (slot ``adv_head``)."""
        x = as_input(obs)
        output = Output()
        actor_map = None
        trunk_map = self.trunk(x) if policy or self.value_trunk is None else None
        if policy:
            actor_map = self.actor_in(trunk_map)
            output = self._policy(actor_map, actions)
            output.trunk_map = trunk_map
        if value:
            critic_map = self.critic_in(self.value_trunk(x) if self.value_trunk is not None else trunk_map)
            if self.value_neck is not None:
                features = self.value_neck(critic_map)
            elif actor_map is critic_map and output.features is not None:
                features = output.features  # the same dense layer on the same map
            else:
                features, _ = _with_aux(self.neck(critic_map))
            output.value = self.value_head(features).squeeze(-1)
        return output

    def policy_branch(self, trunk_map: Tensor, actions: Tensor | None = None) -> Output:
        """The policy once more on a map that a pass has returned, from the slot ``actor_in`` on."""
        return self._policy(self.actor_in(trunk_map), actions)

    def _policy(self, actor_map: Tensor, actions: Tensor | None) -> Output:
        features, aux = _with_aux(self.neck(actor_map))
        output = Output(self.policy_head(features), features=features, aux=aux)
        if self.adv_head is not None and actions is not None:
            one_hot = F.one_hot(actions, NUM_ACTIONS).to(features.dtype)
            output.aux["advantage"] = self.adv_head(torch.cat([features, one_hot], 1)).squeeze(-1)
        return output

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by network: ``all``, and for the decoupled topology also ``policy`` and ``value``."""
        groups = {"all": list(self.parameters())}
        if self.value_trunk is not None and self.value_neck is not None:
            parts = (self.value_trunk, self.value_neck, self.value_head)
            groups["value"] = [parameter for part in parts for parameter in part.parameters()]
            ours = {id(parameter) for parameter in groups["value"]}
            groups["policy"] = [parameter for parameter in groups["all"] if id(parameter) not in ours]
        return groups


def _with_aux(returned: Tensor | tuple[Tensor, dict[str, Tensor]]) -> tuple[Tensor, dict[str, Tensor]]:
    """What a neck returned: features, or features and what it has to say besides, for :attr:`Output.aux`."""
    return (returned, {}) if isinstance(returned, Tensor) else returned


def as_input(obs: Tensor) -> Tensor:
    """Frames as the convolutions take them; bytes stay bytes up to here. Channels stay innermost in memory."""
    if obs.dtype == torch.uint8:
        return obs.permute(0, 3, 1, 2).to(torch.float32).mul_(1 / 255)
    return obs


@dataclass(frozen=True)
class _Post:
    """Builds the convolutions, each with what follows it."""

    config: NetworkConfig
    factories: tuple[ConvPost, ...]

    def convolution(self, name: str, inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Module:
        """A convolution whose output has ``size`` by ``size`` positions."""
        convolution = nn.Conv2d(inputs, outputs, 3, stride, padding=1)
        nn.init.xavier_uniform_(convolution.weight)
        nn.init.zeros_(convolution.bias)  # type: ignore[arg-type]
        layers: list[nn.Module] = [convolution]
        norm, statistics = self.config.norm, self.config.norm_statistics
        if norm == "all" or (norm == "block" and name.endswith(".conv")):
            layers.append(nn.BatchNorm2d(outputs, track_running_stats=statistics == "running"))
        layers += [module for factory in self.factories if (module := factory(name, outputs, size)) is not None]
        return nn.Sequential(*layers) if len(layers) > 1 else convolution


def linear_head(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A linear layer that starts with orthogonal weights and a bias of zero."""
    head = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(head.weight, gain)
    nn.init.zeros_(head.bias)
    return head
