"""The settings that every method with a CLOP layer has."""

import dataclasses
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch

from clop.cli.flags import field_texts
from clop.errors import UsageError
from clop.layer_settings import LayerSettings


@dataclass(frozen=True)
class Other(LayerSettings):
    """A method of another name."""

    group: ClassVar[str] = "other"

    slot: str | None = None
    """Where the layer goes."""


def test_the_layer_has_all_the_settings():
    """Fails if one of them is forgotten on the way, for every method at once."""
    generator = torch.Generator()
    strange = {"alpha": 0.3, "variant": "raster", "local": False, "channel_consistent": False, "per_sample": True}
    assert set(strange) == {field.name for field in dataclasses.fields(LayerSettings)}
    layer = LayerSettings(**strange).layer(0.9, generator)
    assert {name: getattr(layer, name) for name in strange} == strange
    assert layer.generator is generator


def test_an_alpha_that_is_given_counts_even_if_it_is_zero():
    """Fails for `alpha or default`."""
    assert LayerSettings().layer(0.9).alpha == 0.9
    assert LayerSettings(alpha=0.0).layer(0.9).alpha == 0


@pytest.mark.parametrize("alpha", [-0.1, 1.5, float("nan")])
def test_an_error_names_the_setting_as_the_method_does(alpha):
    with pytest.raises(UsageError, match=r"^clop\.alpha is a probability and must lie in \[0, 1\]"):
        LayerSettings(alpha=alpha)
    with pytest.raises(UsageError, match=r"^other\.alpha is"):
        Other(alpha=alpha)


def test_help_texts_are_inherited():
    """Fails if only the class itself is read: most flags of CLOP would have no help."""
    texts = field_texts(Other)
    assert {field.name for field in dataclasses.fields(Other)} <= set(texts)
    assert texts["slot"] == "Where the layer goes."
    assert texts["alpha"].startswith("Probability of a swap")
