"""The published numbers are those of the paper's tables."""

import pytest

from clop.report.published import Accuracy, augmentation_costs, read_table, supervised


def test_the_papers_accuracies_are_found_by_task_and_method():
    mnist = supervised("mnist-usps")
    assert list(mnist) == ["plain", "dropout", "batch_norm", "clop"]
    assert str(mnist["clop"].test) == "91.2 ± 2.4"
    assert mnist["clop"].train == Accuracy(99.9, 0.0)
    assert mnist["plain"].scale == "small_cnn, 60000 images, 32 px, 30 epochs, 20 runs"
    assert str(supervised("imagewoof")["mixup"].test) == "25.1 ± 19.2"
    assert str(supervised("stl10")["clop"].test) == "72.4 ± 0.6"
    assert supervised("imagenet")["clop"].test == Accuracy(71.75, None)
    assert supervised("digits") == {}


def test_imagenettes_means_agree_where_the_paper_prints_them_twice():
    first = {
        row["method"]: float(row["mean"])
        for row in read_table("supervised_mnist_usps_imagenette")
        if row["dataset"] == "imagenette" and row["split"] == "test"
    }
    second = supervised("imagenette")
    assert first == {method: second[method].test.mean for method in first}


def test_costs_have_our_names_and_no_number_where_the_paper_has_none():
    assert augmentation_costs("mnist") == {"plain": 6.6, "crop": 16.8, "rotation": 18.1, "cutout": 6.9, "clop": 6.6}
    assert augmentation_costs("imagenette")["random_conv"] == pytest.approx(42.3)
