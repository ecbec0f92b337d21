"""The network: an encoder, an actor and a critic, with named slots that a method may fill.

The encoder's map goes through a dense layer of 256 (the neck) to linear heads for the policy and the value. Actor and
critic share all of it, have a neck each, or a network each.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clop.kernels.dense import Linear
from clop.kernels.winograd import fewer_products
from clop.rl.encoders import find_encoder
from clop.rl.encoders.base import Builder, Shape, Slots
from clop.rl.envs.spec import EnvSpec
from clop.rl.settings import NetworkConfig

FEATURES = 256


@dataclass
class Output:
    """What one pass returns; what was not asked for is None."""

    logits: Tensor | None = None  # (N, actions)
    value: Tensor | None = None  # (N,)
    features: Tensor | None = None  # (N, 256), of the policy
    aux: dict[str, Tensor] = field(default_factory=dict)
    encoder_map: Tensor | None = None  # (N, C, H, W), what the policy's branch starts from

    def cpu(self) -> "Output":
        """Policy and value, which is all that is read of it while acting, on the CPU; in one transfer from a GPU."""
        logits, value = self.logits, self.value
        if logits is None or value is None or logits.is_cpu:
            return Output(None if logits is None else logits.cpu(), None if value is None else value.cpu())
        both = torch.cat([logits, value[:, None]], 1).cpu()
        return Output(both[:, :-1], both[:, -1])

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


def slots_of(encoder: str) -> Slots:
    """The slots of a network with this encoder, all empty.

    ``input``, one after each of its stages, and ``encoder_out``: in the encoder, for actor and critic alike.
    ``actor_in`` and ``critic_in``: what each of them reads. ``neck``: in place of the dense layer. ``adv_head``: a head
    beside the policy's. A critic with an encoder of its own has slots of its own in it, such as ``critic.input``.
    """
    inside = ("input", *find_encoder(encoder).stages, "encoder_out")
    return Slots((*inside, "actor_in", "critic_in", "neck", "adv_head", *(f"critic.{name}" for name in inside)))


class Dense(Linear):
    """A map (C, H, W), flattened or averaged over its positions, to numbers that are not rectified yet."""

    def __init__(self, config: NetworkConfig, shape: Shape, outputs: int) -> None:
        channels, height, width = shape
        super().__init__(channels if config.impoola else channels * height * width, outputs)
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

    def __init__(self, config: NetworkConfig, shape: Shape) -> None:
        super().__init__()
        self.dense = Dense(config, shape, FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu_(self.dense(x))


class Network(nn.Module):
    """Policy and value on game frames.

    Args:
        config: Its shape.
        spec: What the game shows and takes.
        slots: What methods have put into it.
        generator: For layers that draw.

    Shape:
        - input: uint8 (N, H, W, C) as the games give it, or float (N, C, H, W) in [0, 1]
    """

    def __init__(
        self,
        config: NetworkConfig,
        spec: EnvSpec,
        slots: Slots | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        slots = slots or slots_of(config.encoder)
        generator = generator or torch.Generator()
        build = Builder(config, spec.num_actions, generator, slots.factories, slots.after_convolutions)
        self.config, self.num_actions = config, spec.num_actions
        # What stands before the first convolution reads numbers that are not rounded yet.
        short = config.amp == "bf16" and not {"input", "critic.input"} & set(slots.factories)
        self.input_dtype = torch.bfloat16 if short else torch.float32
        encoder = find_encoder(config.encoder)
        self.encoder = encoder(build, spec.input_shape)
        shape = self.encoder.map_shape
        self.actor_in = build.slot("actor_in", shape)
        self.critic_in = build.slot("critic_in", shape)

        self.neck = build.slot("neck", shape) if "neck" in slots.factories else Neck(config, shape)
        self.critic_neck = Neck(config, shape) if config.topology != "shared" else None
        self.critic_encoder = None
        if config.topology == "decoupled":
            self.critic_encoder = encoder(replace(build, prefix="critic."), spec.input_shape)
        self.policy_head = linear_head(FEATURES, spec.num_actions, gain=0.01)
        self.value_head = linear_head(FEATURES, 1, gain=1.0)
        # Last, so that the other weights are those of a network without it.
        self.adv_head = build.slot("adv_head", shape) if "adv_head" in slots.factories else None
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(self, obs: Tensor, *, policy: bool = True, value: bool = True, actions: Tensor | None = None) -> Output:
        """Policy, value or both; with ``actions``, also the predicted advantage of each (slot ``adv_head``)."""
        x = as_input(obs, self.input_dtype)
        output = Output()
        actor_map = None
        encoder_map = self._map(self.encoder, x) if policy or self.critic_encoder is None else None
        if policy:
            actor_map = self.actor_in(encoder_map)
            output = self._policy(actor_map, actions)
            output.encoder_map = encoder_map
        if value:
            critic_map = self.critic_in(
                encoder_map if self.critic_encoder is None else self._map(self.critic_encoder, x)
            )
            output.value = self._value(critic_map, output.features if actor_map is critic_map else None)
        return output

    def branches(self, encoder_map: Tensor) -> Output:
        """Policy and value once more on the map of a pass, from the slots ``actor_in`` and ``critic_in`` on; for
        networks with one encoder."""
        actor_map, critic_map = self.actor_in(encoder_map), self.critic_in(encoder_map)
        output = self._policy(actor_map, None)
        output.value = self._value(critic_map, output.features if actor_map is critic_map else None)
        return output

    def _map(self, encoder: nn.Module, x: Tensor) -> Tensor:
        """What the encoder makes of frames, in the order in which dense layers read it.

        Actor and critic share the copy, and their gradients, added up, are copied back once.
        """
        fewer = fewer_products() if self.config.convolutions == "winograd" else nullcontext()
        with self._precision(x), fewer:
            encoder_map: Tensor = encoder(x)
        if self.config.impoola:  # averaged over positions, it need not be copied
            return encoder_map
        if encoder_map.requires_grad:
            encoder_map.register_hook(_as_channels_last)
        return encoder_map.contiguous()

    def policy_branch(self, encoder_map: Tensor, actions: Tensor | None = None) -> Output:
        """The policy once more on a map that a pass has returned, from the slot ``actor_in`` on."""
        return self._policy(self.actor_in(encoder_map), actions)

    def value_branch(self, encoder_map: Tensor) -> Tensor:
        """(N,) The value once more on a map of the encoder that the critic reads, from the slot ``critic_in`` on."""
        return self._value(self.critic_in(encoder_map), None)

    def _policy(self, actor_map: Tensor, actions: Tensor | None) -> Output:
        features, aux = self._features(self.neck, actor_map)
        output = Output(self.policy_head(features), features=features, aux=aux)
        if self.adv_head is not None and actions is not None:
            one_hot = F.one_hot(actions, self.num_actions).to(features.dtype)
            output.aux["advantage"] = self.adv_head(torch.cat([features, one_hot], 1)).squeeze(-1)
        return output

    def _value(self, critic_map: Tensor, features: Tensor | None) -> Tensor:
        """``features`` are those of the policy, if it has read the same map."""
        if self.critic_neck is not None:
            features, _ = self._features(self.critic_neck, critic_map)
        elif features is None:
            features, _ = self._features(self.neck, critic_map)
        return self.value_head(features).squeeze(-1)

    def _features(self, neck: nn.Module, x: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """What a neck returns: features, and what it has to say besides, for :attr:`Output.aux`."""
        with self._precision(x):
            returned = neck(x)
        features, aux = (returned, {}) if isinstance(returned, Tensor) else returned
        if self.config.amp == "off":
            return features, aux
        return features.float(), {name: value.float() for name, value in aux.items()}

    def _precision(self, x: Tensor) -> AbstractContextManager[object]:
        return torch.autocast(x.device.type, torch.bfloat16) if self.config.amp == "bf16" else nullcontext()

    def groups(self) -> dict[str, list[nn.Parameter]]:
        """Parameters by network: ``all``, and for the decoupled topology also ``policy`` and ``value``."""
        groups = {"all": list(self.parameters())}
        if self.critic_encoder is not None and self.critic_neck is not None:
            parts = (self.critic_encoder, self.critic_neck, self.value_head)
            groups["value"] = [parameter for part in parts for parameter in part.parameters()]
            ours = {id(parameter) for parameter in groups["value"]}
            groups["policy"] = [parameter for parameter in groups["all"] if id(parameter) not in ours]
        return groups


def _as_channels_last(gradient: Tensor) -> Tensor:
    """In the order of the encoder: a ReLU's gradient takes 28 times as long where the two orders differ."""
    return gradient.contiguous(memory_format=torch.channels_last)


def as_input(obs: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Frames as the convolutions take them; bytes stay bytes up to here. Channels stay innermost in memory.

    In bfloat16 they are the rounded float32 to the bit: bytes fit in it, and their multiples are rounded once.
    """
    if obs.dtype == torch.uint8:
        return obs.permute(0, 3, 1, 2).to(dtype).mul_(1 / 255)
    return obs


def linear_head(inputs: int, outputs: int, gain: float) -> nn.Linear:
    """A linear layer that starts with orthogonal weights and a bias of zero."""
    head = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(head.weight, gain)
    nn.init.zeros_(head.bias)
    return head
