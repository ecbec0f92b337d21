"""Run a script that imports timm where torchvision does not load: ``python run_without_torchvision.py SCRIPT``.

timm imports torchvision for its data sets and transforms, also where only its models are wanted. Here every module of
torchvision is an empty one whose names are empty classes: enough to import timm, of whose models none is changed. A
script that reads images with timm fails.
"""

import importlib.abc
import importlib.machinery
import runpy
import sys
import types


class Empty(type):
    """A class without content; a name of it, as ``InterpolationMode.NEAREST``, is that name."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class EmptyModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Empty(name, (), {})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] != "torchvision":
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return EmptyModule(spec.name)

    def exec_module(self, module):
        pass


if __name__ == "__main__":
    sys.meta_path.insert(0, Finder())
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
