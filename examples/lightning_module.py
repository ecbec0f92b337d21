"""CLOP in a Lightning module, with an alpha that grows over the epochs.

python examples/lightning_module.py --epochs 3
"""

import argparse

import lightning
import torch
from torch import Tensor, nn
from torch_cnn import corners, network

from clop import CLOP


class Classifier(lightning.LightningModule):
    """Lightning sets training and evaluation mode, so the layer needs no further care."""

    def __init__(self, alpha: float, epochs: int) -> None:
        super().__init__()
        self.model = network(alpha=0.0)
        self.alpha, self.epochs = alpha, epochs

    def on_train_epoch_start(self) -> None:
        for module in self.modules():
            if isinstance(module, CLOP):
                module.alpha = self.alpha * (self.current_epoch + 1) / self.epochs

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        images, labels = batch
        return nn.functional.cross_entropy(self.model(images), labels)

    def test_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        images, labels = batch
        self.log("accuracy", (self.model(images).argmax(1) == labels).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), 2e-3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alpha", type=float, default=0.3)
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    generator = torch.Generator().manual_seed(0)
    train, test = (torch.utils.data.DataLoader(corners(count, generator), 64) for count in (1024, 256))
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=arguments.epochs, accelerator="cpu", **quiet)
    module = Classifier(arguments.alpha, arguments.epochs)
    trainer.fit(module, train)
    (result,) = trainer.test(module, test, verbose=False)
    print(f"accuracy {result['accuracy']:.3f}")


if __name__ == "__main__":
    main()
