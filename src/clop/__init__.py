"""CLOP, the channel-consistent local permutation layer, and the experiments around it."""

from clop.functional import clop
from clop.insert import insert
from clop.layer import CLOP

__version__ = "0.1.0"
__all__ = ["CLOP", "clop", "insert"]
