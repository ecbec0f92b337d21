"""CLOP in a network of plain PyTorch: one line.

python examples/torch_cnn.py --epochs 5
"""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from clop import CLOP


def network(alpha: float) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        CLOP(alpha),  # the line: after the deepest map, before it is flattened
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 4),
    )


def corners(count: int, generator: torch.Generator) -> TensorDataset:
    """Noise with a bright square; the class is the quarter of the image that it lies in."""
    images = torch.rand(count, 1, 16, 16, generator=generator) / 2
    rows, columns = torch.randint(0, 12, (2, count), generator=generator)
    for image, row, column in zip(images, rows, columns, strict=True):
        image[0, row : row + 5, column : column + 5] += 0.5
    return TensorDataset(images, 2 * (rows >= 6) + (columns >= 6).long())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--epochs", type=int, default=5)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    train, test = corners(1024, generator), corners(256, generator)
    model = network(arguments.alpha)
    optimiser = torch.optim.Adam(model.parameters(), 2e-3)
    for _ in range(arguments.epochs):
        model.train()  # CLOP permutes
        for images, labels in DataLoader(train, 64, shuffle=True):
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(images), labels).backward()
            optimiser.step()
    model.eval()  # CLOP is the identity
    images, labels = test.tensors
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean()
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
