"""Public names of a package, loaded when they are asked for: torch takes seconds, and ``clop --help`` does without."""

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose public names live in these modules, or are modules themselves."""

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = importlib.import_module(homes[name])
        found = home if homes[name] == f"{package}.{name}" else getattr(home, name)
        setattr(sys.modules[package], name, found)
        return found

    return find
