"""Settings of the learner and of its network: PPOConfig and NetworkConfig."""

from dataclasses import dataclass
from typing import Literal

from clop.errors import UsageError, check_choices

Mode = Literal["train", "eval"]
"""Of a network: whether its layers behave as in an update or as in an evaluation."""


@dataclass(frozen=True)
class PPOConfig:
    """Settings of PPO.

    The defaults are those of OpenAI's Procgen agents.
    """

    num_envs: int = 64
    """Games that are played at once, in all processes together."""
    num_steps: int = 256
    """Steps of a rollout in each env."""
    update_epochs: int = 3
    """Passes over a rollout in its update."""
    num_minibatches: int = 8
    """Minibatches of an epoch; one optimiser step each."""
    micro_batch: int = 128
    """Frames in one pass, at most; gradients accumulate over the minibatch. Few frames stay in the cache."""
    gamma: float = 0.999
    """Discount of rewards."""
    gae_lambda: float = 0.95
    """Decay of generalised advantage estimation."""
    learning_rate: float = 5e-4
    """Step size of Adam."""
    schedule: Literal["constant", "linear"] = "constant"
    """Course of the learning rate; ``linear`` goes to 0 at the end of training."""
    clip_coef: float = 0.2
    """How far the ratio of new to old policy may go from 1, and the value from its old one, before they are clipped."""
    clip_vloss: bool = True
    """Whether the change of the value is clipped, as the ratio of the policies is."""
    vf_coef: float = 0.5
    """Weight of the value loss."""
    ent_coef: float = 0.01
    """Weight of the entropy."""
    max_grad_norm: float = 0.5
    """Norm to which gradients are clipped."""
    adam_epsilon: float = 1e-5
    """Epsilon of Adam."""
    adam: Literal["torch", "tf"] = "torch"
    """Where Adam adds epsilon: after the bias correction of the second moment (``torch``), or before it, as TensorFlow
    does (``tf``), for strict comparisons with OpenAI's logs."""
    advantage_norm: Literal["minibatch", "batch", "micro"] = "minibatch"
    """Transitions over which advantages are normalised: those of one optimiser step, the rollout, or one micro-batch,
    as each worker of OpenAI's code does with its share."""
    advantage_std: Literal["population", "unbiased"] = "population"
    """Estimate of the advantages' standard deviation, by which they are divided."""
    advantage_epsilon: float = 1e-8
    """Added to the advantages' standard deviation, so that none is divided by 0."""
    accumulate: Literal["mean", "sum"] = "mean"
    """Whether the losses of micro-batches are averaged, as they should, or added, as the authors' code does."""
    reward_gamma: float = 0.99
    """Discount of the reward normaliser, which is not ``gamma`` in any code that came from OpenAI's baselines."""

    def __post_init__(self) -> None:
        for name in ("num_envs", "num_steps", "update_epochs", "num_minibatches", "micro_batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"ppo.{name} must be at least 1, got {getattr(self, name)}")
        for name in ("learning_rate", "clip_coef", "max_grad_norm", "adam_epsilon", "advantage_epsilon"):
            if getattr(self, name) < 0:
                raise UsageError(f"ppo.{name} must not be negative, got {getattr(self, name)}")
        if self.batch_size % self.num_minibatches:
            raise UsageError(
                f"num_minibatches={self.num_minibatches} does not divide num_envs * num_steps = {self.batch_size}; "
                "the last minibatch would be smaller"
            )
        for name in ("gamma", "gae_lambda", "reward_gamma"):
            if not 0 <= getattr(self, name) <= 1:
                raise UsageError(f"ppo.{name} must lie in [0, 1], got {getattr(self, name)}")
        check_choices(self, "ppo", ("adam",))

    @property
    def batch_size(self) -> int:
        """Transitions of one rollout in all envs."""
        return self.num_envs * self.num_steps

    def check_share(self, transitions: int) -> None:
        """A :class:`UsageError` if one process cannot make equal minibatches of its transitions."""
        if transitions % self.num_minibatches:
            raise UsageError(
                f"num_minibatches={self.num_minibatches} does not divide the {transitions} transitions of one process; "
                "the last minibatch would be smaller"
            )


@dataclass(frozen=True)
class NetworkConfig:
    """The shape of the network."""

    encoder: str = "impala"
    """From frames to the last map: ``impala``, the Procgen agents' network; ``small``, several times as fast on a CPU;
    ``nature``, that of DQN."""
    width: float = 1
    """Multiplier of the convolutions' channels: 0.5, 1, 2 or 4."""
    topology: Literal["shared", "split", "decoupled"] = "shared"
    """``shared``: one encoder and one dense layer. ``split``: a dense layer for the policy and one for the value.
    ``decoupled``: a network each."""
    norm: Literal["none", "block", "all"] = "none"
    """Batch norm after no convolution, after the first of each stage (``block``), or after each (``all``)."""
    norm_statistics: Literal["running", "batch"] = "running"
    """What batch norm goes by in evaluation mode: ``running`` averages, or the frames at hand (``batch``)."""
    impoola: bool = False
    """Whether a global average pool stands before the dense layer (Impoola; Trumpp et al., 2025)."""
    dense_init: Literal["xavier", "orthogonal"] = "xavier"
    """Initial weights of the dense layer: ``xavier`` uniform, or ``orthogonal`` with gain sqrt(2)."""
    skip_relu: bool = False
    """Whether residual pairs add their rectified input, as a ReLU in place does in the code of DrAC, DAAC and IDAAC."""
    convolutions: Literal["direct", "winograd"] = "direct"
    """How 3×3 convolutions are computed on one thread of a CPU with AVX-512: ``direct``, or by the algorithm of
    ``winograd``, with fewer products and as exact. IMPALA then learns 1.4 times as fast, by other sums; evaluations
    always go that way."""
    amp: Literal["off", "bf16"] = "off"
    """Mixed precision: ``bf16`` has torch's autocast run encoder and dense layers in bfloat16, for GPUs, and CPUs with
    AVX512-BF16 or AMX, that are faster in it. Weights, heads and losses stay float32."""

    @property
    def uses_batch_statistics(self) -> bool:
        """Whether what it makes of a frame depends on the frames beside it, in evaluation mode too."""
        return self.norm != "none" and self.norm_statistics == "batch"

    def __post_init__(self) -> None:
        if self.width not in WIDTHS:
            raise UsageError(f"network.width is one of {', '.join(map(str, WIDTHS))}, got {self.width}")
        check_choices(self, "network", ("topology", "norm", "norm_statistics", "dense_init", "convolutions", "amp"))


WIDTHS = (0.5, 1, 2, 4)
