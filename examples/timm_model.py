"""CLOP in a network that somebody else wrote: insert it into a model of timm.

python examples/timm_model.py --model resnet18
"""

import argparse

import timm
import torch

import clop


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="resnet18")
    parser.add_argument("--alpha", type=float, default=0.5)
    arguments = parser.parse_args()
    model = timm.create_model(arguments.model, num_classes=10)
    example = torch.rand(2, 3, 64, 64)
    try:
        clop.insert(model, arguments.alpha, example=example)
    except ValueError as error:
        # Most models of timm end in a global average pool, which does not see a permutation of the last map.
        print(error)
        clop.insert(model, arguments.alpha, after="layer3", example=example)
    places = [name for name, module in model.named_modules() if isinstance(module, clop.CLOP)]
    print(f"CLOP is {', '.join(places)}")

    optimiser = torch.optim.SGD(model.parameters(), 0.01)
    images, labels = torch.rand(4, 3, 64, 64), torch.randint(0, 10, (4,))
    loss = torch.nn.functional.cross_entropy(model.train()(images), labels)
    loss.backward()
    optimiser.step()
    print(f"loss {loss:.3f}")


if __name__ == "__main__":
    main()
