"""VisionConfig, and the trainer it describes; writes no file.

The protocol is the paper's: Adam, cosine annealing stepped once an epoch, cross-entropy. Images stay bytes until they
reach the device, and the network works channels last.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, get_args

import torch
from torch import Tensor, nn

from clop.adam import Adam
from clop.augment import Flip
from clop.errors import DivergedError, UsageError, unknown_name
from clop.fields import whole
from clop.seeds import check_seed, mixed
from clop.vision.datasets import Images
from clop.vision.methods import METHODS, Batch, Method, Plan
from clop.vision.models import DenseInit, check_image_size, find_network
from clop.vision.tasks import Task, recipe


@dataclass(frozen=True)
class VisionConfig:
    """One training run: everything that decides its numbers."""

    task: str
    network: str
    image_size: int
    epochs: int
    dense_init: DenseInit = "pytorch"
    """Initial weights of the dense layers: ``pytorch`` has those of ``nn.Linear``, as in the authors' code;
    ``torchvision`` has those of torchvision's VGGs, normal with a deviation of 0.01, and biases of 0."""
    train_images: int | None = None
    """How many of the task's training images; None stands for all."""
    batch_size: int = 64
    learning_rate: float = 5e-4
    test_every: int = 1
    """Epochs between tests; 0 tests at the end only."""
    seed: int = 0
    threads: int = 1
    """Sums over more threads round differently."""
    data: str | None = None
    """Where the images were looked for first."""
    methods: Mapping[str, Method] = field(default_factory=dict)
    """Settings by name, in the order in which the methods are composed; none of them is the plain network."""

    def __post_init__(self) -> None:
        recipe(self.task)
        check_image_size(self.network, self.image_size)
        if self.dense_init not in get_args(DenseInit):
            raise UsageError(unknown_name("dense_init", self.dense_init, get_args(DenseInit)))
        for method in self.methods.values():
            method.configure(Plan(self.network, torch.Generator()))  # so that a mistake is reported before a run begins
        for name in ("image_size", "epochs", "batch_size", "threads"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} must be at least 1, got {getattr(self, name)}")
        if not (0 <= self.learning_rate < math.inf and self.test_every >= 0):
            raise UsageError(
                f"learning_rate and test_every cannot be negative, got {self.learning_rate} and {self.test_every}"
            )
        check_seed(self.seed)

    @property
    def method(self) -> str:
        """The methods' names joined with ``+``."""
        return "+".join(self.methods) or "plain"

    def asdict(self) -> dict[str, Any]:
        """Plain names and numbers, as written to a file."""
        return dataclasses.asdict(self) | {
            "methods": {name: dataclasses.asdict(settings) for name, settings in self.methods.items()}
        }

    @classmethod
    def fromdict(cls, values: Mapping[str, Any]) -> "VisionConfig":
        """The inverse of :meth:`asdict`."""
        methods = {name: METHODS[name](**whole(METHODS[name], given)) for name, given in values["methods"].items()}
        return cls(**whole(cls, values) | {"methods": methods})


def paper_config(task: str, **changes: Any) -> VisionConfig:
    """The paper's settings for a task with some of them changed."""
    paper = recipe(task)
    values: dict[str, Any] = {"network": paper.network, "image_size": paper.image_size, "epochs": paper.epochs}
    return VisionConfig(task=task, **(values | changes))


@dataclass(frozen=True)
class VisionResult:
    """A trained network and its accuracies in percent.

    ``running_accuracy`` is what the paper reports for training: over the last epoch, in training mode, the weights
    moving. The others are in evaluation mode.
    """

    model: nn.Module
    running_accuracy: float
    train_accuracy: float
    test_accuracy: dict[str, float]


class Trainer:
    """A training run between two steps: network, optimiser, random numbers and where they stand."""

    def __init__(self, config: VisionConfig, task: Task, device: torch.device | str = "cpu") -> None:
        self.config, self.task, self.device = config, task, torch.device(device)
        self.methods = list(config.methods.values())
        # What a method draws changes neither the order of images nor the weights at the start.
        self.shuffle = torch.Generator().manual_seed(mixed(config.seed, 1))
        self.flips = torch.Generator().manual_seed(mixed(config.seed, 2))
        self.noise = torch.Generator().manual_seed(mixed(config.seed, 3))
        torch.manual_seed(config.seed)
        plan = Plan(config.network, self.noise, config.dense_init)
        for method in self.methods:
            method.configure(plan)
        model = plan.build(task.channels, task.classes, task.image_size).to(self.device)
        self.model: nn.Module = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        # The fused kernel makes one pass over the weights where the default makes ten.
        self.optimiser = Adam(self.model.parameters(), config.learning_rate, fused=True)
        self.part = find_network(config.network).part  # batches that advance() takes
        self.fingerprint = task.fingerprint()
        self.iteration = self.epoch = 0
        self.position = 0  # images of this epoch that are done
        self.running_accuracy = 0.0
        self._loss_sum, self._correct = 0.0, 0
        self._order: Tensor | None = None
        self._shuffled_from = self.shuffle.get_state()

    @property
    def images(self) -> int:
        """Images seen in all."""
        return self.epoch * len(self.task.train) + self.position

    @property
    def total_images(self) -> int:
        return self.config.epochs * len(self.task.train)

    @property
    def done(self) -> bool:
        return self.epoch >= self.config.epochs

    # ---- training ------------------------------------------------------------------------------------------------

    def advance(self) -> dict[str, float]:
        """Train on the next batches, a few seconds of work but not beyond the epoch, and return what to log.

        The loss and the running accuracy are those of the epoch so far. Its last part tests the network too.
        """
        if self._order is None:
            self._shuffled_from = self.shuffle.get_state()
            self._order = torch.randperm(len(self.task.train), generator=self.shuffle)
        rate = self.config.learning_rate * (1 + math.cos(math.pi * self.epoch / self.config.epochs)) / 2
        self.optimiser.param_groups[0]["lr"] = rate
        end = self.position + self.part * self.config.batch_size
        self._train(self._order[self.position : end])
        self.position = min(end, len(self._order))
        self.running_accuracy = 100 * self._correct / self.position
        row = {
            "epoch": self.epoch + self.position / len(self._order),
            "loss": self._loss_sum / self.position,
            "running_accuracy": self.running_accuracy,
            "learning_rate": rate,
        }
        self.iteration += 1
        if self.position == len(self._order):
            self.epoch, self.position, self._order = self.epoch + 1, 0, None
            self._loss_sum, self._correct = 0.0, 0
            if self.config.test_every and self.epoch % self.config.test_every == 0:
                row |= {f"test_accuracy_{name}": value for name, value in self.test().items()}
        return row

    def _train(self, order: Tensor) -> None:
        """One optimiser step for each batch of these images."""
        self.model.train()
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), device=self.device, dtype=torch.long)
        for pixels, labels in batches(self.task.train, order, self.config.batch_size, self.device):
            batch = self.batch(pixels, labels)
            logits = self.model(batch.images)
            loss = batch.loss(logits)
            self.optimiser.zero_grad()
            loss.backward()
            self.optimiser.step()
            loss_sum += loss.detach() * len(labels)
            correct += (logits.argmax(1) == batch.heavier).sum()
        self._loss_sum += loss_sum.item()
        self._correct += int(correct.item())
        if not math.isfinite(self._loss_sum):
            raise DivergedError(f"the loss is no longer a number after {self.images} images")

    def batch(self, pixels: Tensor, labels: Tensor) -> Batch:
        """What the network is trained on of a batch of bytes."""
        if self.task.flip:
            pixels = Flip(p=0.5)(pixels, generator=self.flips)
        for method in self.methods:
            pixels = method.augment(pixels, self.noise)
        batch = Batch(normalised(pixels, self.task), labels)
        for method in self.methods:
            batch = method.mix(batch, self.noise)
        return batch

    # ---- measuring -----------------------------------------------------------------------------------------------

    def test(self) -> dict[str, float]:
        """Percent right on each test set."""
        return {name: accuracy(self.model, images, self.task, self.device) for name, images in self.task.tests.items()}

    def result(self) -> VisionResult:
        """The network, and its accuracies."""
        train = accuracy(self.model, self.task.train, self.task, self.device)
        return VisionResult(self.model, self.running_accuracy, train, self.test())

    # ---- state ---------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """All that a run needs to go on bit for bit, between two parts."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "iteration": self.iteration,
            "epoch": self.epoch,
            "position": self.position,
            "running_accuracy": self.running_accuracy,
            "sums": [self._loss_sum, self._correct],
            "generators": {
                "shuffle": self.shuffle.get_state() if self._order is None else self._shuffled_from,
                "flips": self.flips.get_state(),
                "noise": self.noise.get_state(),
            },
            "data": self.fingerprint,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a :meth:`state`."""
        if state["data"] != self.fingerprint:
            raise UsageError(f"the run was begun on other images than {self.task.scale}; name their folder as data")
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.iteration, self.epoch, self.position = state["iteration"], state["epoch"], state["position"]
        self.running_accuracy = state["running_accuracy"]
        self._loss_sum, self._correct = state["sums"]
        for name, bits in state["generators"].items():
            getattr(self, name).set_state(bits)
        self._order = None  # drawn again from the state before it


def train(
    config: VisionConfig,
    task: Task,
    device: torch.device | str = "cpu",
    on_part: Callable[[Trainer, Mapping[str, float]], None] = lambda *_: None,
) -> VisionResult:
    """Train to the end; what is logged is handed over after each part."""
    trainer = Trainer(config, task, device)
    while not trainer.done:
        on_part(trainer, trainer.advance())
    return trainer.result()


@torch.no_grad()
def accuracy(model: nn.Module, images: Images, task: Task, device: torch.device | str = "cpu") -> float:
    """Percent of images classified right, in evaluation mode; the model's mode is as before afterwards."""
    training = model.training
    model.eval()
    size = max(16, min(512, 512 * 48**2 // task.image_size**2))  # so many that large images still fit into memory
    correct = sum(
        (model(normalised(pixels, task)).argmax(1) == labels).sum()
        for pixels, labels in batches(images, torch.arange(len(images)), size, device)
    )
    model.train(training)
    return 100 * float(correct) / len(images)


def batches(images: Images, order: Tensor, size: int, device: torch.device | str) -> Iterator[tuple[Tensor, Tensor]]:
    """Bytes, channels last, and classes of the images with these numbers, in batches."""
    rows = images.pixels.permute(0, 2, 3, 1)  # in memory an image is then one piece
    for index in order.split(size):
        pixels = rows[index].to(device, non_blocking=True).permute(0, 3, 1, 2)
        yield pixels, images.labels[index].to(device, non_blocking=True)


def normalised(pixels: Tensor, task: Task) -> Tensor:
    """Bytes, or floats in [0, 1], as the network takes them: float, scaled, channels last."""
    x = pixels.to(dtype=torch.float32, memory_format=torch.channels_last, copy=True)
    full = 255 if pixels.dtype == torch.uint8 else 1
    scale, shift = _scale_and_shift(full, task.mean, task.std, x.device)
    return x.mul_(scale).sub_(shift)


@lru_cache
def _scale_and_shift(
    full: int, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """(C, 1, 1) each; kept, since a copy to the device for each batch would wait for it."""
    scale = torch.tensor([1 / (full * s) for s in std], device=device)
    shift = torch.tensor([m / s for m, s in zip(mean, std, strict=True)], device=device)
    return scale.view(-1, 1, 1), shift.view(-1, 1, 1)
