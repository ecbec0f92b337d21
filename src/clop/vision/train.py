"""Train a classifier; returns what was measured and writes no file."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clop.vision.data import Images, Task
from clop.vision.methods import Method
from clop.vision.models import SmallCNN


@dataclass(frozen=True)
class VisionConfig:
    """One training run: everything that decides its numbers, with the method beside it."""

    task: str
    method: str = "clop"
    epochs: int = 15
    batch_size: int = 64
    learning_rate: float = 5e-4
    seed: int = 0


@dataclass(frozen=True)
class Epoch:
    """What is known after an epoch. The paper reports the running accuracy: in training mode, the weights moving."""

    epoch: int
    loss: float
    running_accuracy: float
    images: int


@dataclass(frozen=True)
class VisionResult:
    """A trained network and its accuracies in percent, all in evaluation mode but the running one."""

    model: nn.Module
    running_accuracy: float
    train_accuracy: float
    test_accuracy: dict[str, float]

    def metrics(self) -> dict[str, float]:
        return {
            "running_accuracy": self.running_accuracy,
            "train_accuracy": self.train_accuracy,
            **{f"test_accuracy_{name}": value for name, value in self.test_accuracy.items()},
        }


def train(
    config: VisionConfig,
    task: Task,
    method: Method,
    device: torch.device | str = "cpu",
    on_epoch: Callable[[Epoch], None] = lambda _: None,
) -> VisionResult:
    """The paper's protocol: Adam, cosine annealing stepped per epoch, cross-entropy."""
    torch.manual_seed(config.seed)
    model = SmallCNN(
        task.channels,
        task.classes,
        task.image_size,
        batch_norm=method.batch_norm,
        layers=method.layers(SmallCNN.deepest),
    ).to(device)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimiser = torch.optim.Adam(model.parameters(), config.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, config.epochs)
    shuffle = torch.Generator().manual_seed(config.seed)
    running = 0.0
    for epoch in range(config.epochs):
        model.train()
        loss_sum, correct, seen = torch.zeros((), device=device), torch.zeros((), device=device), 0
        for pixels, labels in batches(task.train, config.batch_size, device, shuffle):
            logits = model(normalised(pixels, task))
            loss = F.cross_entropy(logits, labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            loss_sum += loss.detach() * len(labels)
            correct += (logits.argmax(1) == labels).sum()
            seen += len(labels)
        schedule.step()
        running = 100 * correct.item() / seen
        on_epoch(Epoch(epoch + 1, loss_sum.item() / seen, running, seen))
    return VisionResult(
        model=model,
        running_accuracy=running,
        train_accuracy=accuracy(model, task.train, task, device),
        test_accuracy={name: accuracy(model, images, task, device) for name, images in task.tests.items()},
    )


@torch.no_grad()
def accuracy(model: nn.Module, images: Images, task: Task, device: torch.device | str = "cpu") -> float:
    """Percent of images classified right, in evaluation mode; the model's mode is as before afterwards."""
    training = model.training
    model.eval()
    correct = sum(
        (model(normalised(pixels, task)).argmax(1) == labels).sum() for pixels, labels in batches(images, 512, device)
    )
    model.train(training)
    return 100 * float(correct) / len(images)


def batches(
    images: Images, size: int, device: torch.device | str, shuffle: torch.Generator | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Bytes and classes in batches; in random order if there is a generator."""
    order = torch.arange(len(images)) if shuffle is None else torch.randperm(len(images), generator=shuffle)
    for index in order.split(size):
        yield images.pixels[index].to(device), images.labels[index].to(device)


def normalised(pixels: Tensor, task: Task) -> Tensor:
    """Bytes as the network takes them: float, scaled, channels last."""
    x = pixels.to(dtype=torch.float32, memory_format=torch.channels_last)
    return x.mul_(1 / (255 * task.std)).sub_(task.mean / task.std)
