"""The methods by name. A new one is a file beside this and a line here."""

from typing import Protocol

from clop.composition import parse_methods
from clop.rl.methods.base import Compose, Method
from clop.rl.methods.batch_norm import BatchNorm
from clop.rl.methods.clop import Clop
from clop.rl.methods.clop_auto import ClopAuto
from clop.rl.methods.clop_consistency import ClopConsistency
from clop.rl.methods.daac import Daac
from clop.rl.methods.drac import Drac
from clop.rl.methods.dropout import Dropout
from clop.rl.methods.ibac_sni import IbacSni
from clop.rl.methods.idaac import Idaac
from clop.rl.methods.mixreg import Mixreg
from clop.rl.methods.rad import Rad
from clop.rl.methods.rand_fm import RandFm
from clop.rl.methods.ucb_drac import UcbDrac
from clop.rl.methods.weight_decay import WeightDecay


class MethodConfig(Protocol):
    """The settings of a method, a frozen dataclass; builds the method."""

    def build(self) -> Method: ...


METHODS: dict[str, type[MethodConfig]] = {
    "batch_norm": BatchNorm,
    "clop": Clop,
    "clop_auto": ClopAuto,
    "clop_consistency": ClopConsistency,
    "daac": Daac,
    "drac": Drac,
    "dropout": Dropout,
    "ibac_sni": IbacSni,
    "idaac": Idaac,
    "mixreg": Mixreg,
    "rad": Rad,
    "rand_fm": RandFm,
    "ucb_drac": UcbDrac,
    "weight_decay": WeightDecay,
}


def parse(text: str) -> dict[str, MethodConfig]:
    """``dropout+clop(alpha=0.3)`` as settings by name; ``ppo`` stands for no method."""
    return parse_methods(text, METHODS, "ppo")


def compose(configs: dict[str, MethodConfig]) -> Method:
    """The methods of these settings as one."""
    return Compose({name: config.build() for name, config in configs.items()})
