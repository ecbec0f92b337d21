"""The published numbers, from one CSV per table in the folder of this name.

They are those of Bertoin and Rachelson, *Local Feature Swapping for Generalization in Reinforcement Learning* (2022):
``supervised_mnist_usps_imagenette`` is Table 1, ``supervised_scarce`` Table 8, ``supervised_imagenet`` the text of
Appendix D and ``overhead_supervised`` Table 7. ``supervised_protocols`` joins Table 5 with what the authors' code does
and the sizes of the data sets. Imagenette is in Tables 1 and 8 with the same means and slightly different spreads;
Table 8, which has mixup too, is the one read. Of agents: ``procgen_easy_test`` is Table 2, ``procgen_easy_train``
Table 11, ``procgen_hard_mixreg`` Table 17 and ``idaac_clop`` Table 9, all of them returns.
"""

import csv
from dataclasses import dataclass
from pathlib import Path

_FOLDER = Path(__file__).parent / "published"
_COST_SLUGS = {"random_crop": "crop", "random_convolution": "random_conv"}


@dataclass(frozen=True)
class Accuracy:
    """Percent, and its spread if there is one; the paper does not say what its ± is."""

    mean: float
    std: float | None

    def __str__(self) -> str:
        return f"{self.mean:g}" if self.std is None else f"{self.mean:g} ± {self.std:g}"


@dataclass(frozen=True)
class Published:
    """What the paper prints for a method on a task. Training accuracy is the running one, in training mode."""

    test: Accuracy
    train: Accuracy | None
    scale: str


def read_table(name: str) -> list[dict[str, str]]:
    """The rows of a table."""
    with (_FOLDER / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def supervised(task: str) -> dict[str, Published]:
    """Published accuracies on a task by method; empty for a task that the paper does not have."""
    protocols = {row["task"]: row for row in read_table("supervised_protocols")}
    if task not in protocols:
        return {}
    protocol = protocols[task]
    scale = (
        f"{protocol['network']}, {protocol['train_images']} images, {protocol['image_size']} px, "
        f"{protocol['epochs']} epochs, {protocol['runs'] or 'unknown number of'} runs"
    )
    rows = read_table(protocol["table"])
    if protocol["table"] == "supervised_imagenet":
        return {
            row["method"]: Published(Accuracy(float(row["value_low"]), None), None, scale)
            for row in rows
            if row["quantity"] == "test_top1_accuracy"
        }
    accuracies = {
        (row["method"], row["dataset"], row["split"]): Accuracy(float(row["mean"]), float(row["std"])) for row in rows
    }
    return {
        method: Published(test, accuracies[method, protocol["train_dataset"], "train"], scale)
        for (method, dataset, split), test in accuracies.items()
        if dataset == protocol["test_dataset"] and split == "test"
    }


def augmentation_costs(dataset: str) -> dict[str, float]:
    """Published seconds of one pass over ``mnist`` or ``imagenette``, by method; without what was not measured."""
    return {
        _COST_SLUGS.get(row["method"], row["method"]): float(row["seconds"])
        for row in read_table("overhead_supervised")
        if row["dataset"] == dataset and row["seconds"]
    }


_AGENT_TABLES = {
    "procgen_easy_train": "Table 11 (easy, train levels)",
    "procgen_easy_test": "Table 2 (easy, test)",
    "procgen_hard_mixreg": "Table 17 (hard, test)",
    "idaac_clop": "Table 9 (easy, test)",
}


def agents(table: str) -> dict[tuple[str, str], Accuracy]:
    """Published returns of agents by game and method."""
    return {
        (row["game"], row["method"].replace("idaac_clop", "idaac+clop")): Accuracy(
            float(row["mean"]), float(row["std"])
        )
        for row in read_table(table)
    }


def columns_of(method: str) -> list[str]:
    """The tables of agents in which a method has a column, in words."""
    return [text for table, text in _AGENT_TABLES.items() if any(name == method for _, name in agents(table))]
