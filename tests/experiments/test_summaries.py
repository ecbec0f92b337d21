"""What came of a run survives its file, and a file that says something else is not guessed at."""

import json
from pathlib import Path

import pytest

from clop.errors import UsageError
from clop.experiments.summaries import VisionSummary

PATH = Path("runs/it/summary.json")
SUMMARY = VisionSummary(
    task="digits",
    method="clop+mixup",
    changed={"clop": {"alpha": 0.3}},
    label="clop(alpha=0.3)+mixup",
    network="small_cnn",
    source="digits",
    train_images=1198,
    scale="small_cnn, 1198 images of digits, 32 px, 15 epochs",
    slot="stage3",
    seed=1,
    running_accuracy=92.0,
    train_accuracy=99.0,
    test_accuracy={"centred": 90.0, "filled": 60.0},
    images_per_second=600.0,
    seconds=30.0,
    peak_memory_gb=None,
)


def test_a_summary_survives_its_file():
    assert VisionSummary.fromdict(json.loads(json.dumps(SUMMARY.asdict())), PATH) == SUMMARY


@pytest.mark.parametrize(("version", "shown"), [({}, 1), ({"version": 1}, 1), ({"version": 3}, 3)])
def test_another_format_is_refused_in_one_sentence(version, shown):
    """The first one stated none. Fails if an old file is read for as long as its entries happen to fit."""
    values = {name: value for name, value in SUMMARY.asdict().items() if name != "version"} | version
    with pytest.raises(UsageError) as refused:
        VisionSummary.fromdict(values, PATH)
    assert str(refused.value) == (
        f"runs/it/summary.json is of format {shown} and this clop reads format 2; use the clop that made the run, "
        "whose commit is in config.json, or train anew in another folder"
    )


def test_a_summary_that_lacks_something_or_has_more_is_called_damaged():
    less = {name: value for name, value in SUMMARY.asdict().items() if name != "slot"}
    for values in (less, SUMMARY.asdict() | {"position": 3}):
        with pytest.raises(UsageError, match=r"^runs/it/summary\.json is damaged, or of another version of clop: "):
            VisionSummary.fromdict(values, PATH)
