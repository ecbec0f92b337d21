"""The page's sampler in JavaScript draws Python's permutations, bit for bit."""

import json
import shutil
import subprocess
from importlib.resources import files

import numpy as np
import pytest

from clop.kernels.draw import draw

SAMPLER = files("clop.report.page") / "assets" / "sampler.mjs"
SIZES = [(8, 8), (1, 7), (7, 1), (1, 1), (5, 3), (16, 16), (9,), (2, 3, 4)]
SEEDS = [0, 1, 42, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, -1, -(2**63), 0x9E3779B97F4A7C15 - 2**64]


def cases():
    """Settings of draws: more than a thousand permutations of all kinds."""
    rng = np.random.default_rng(0)
    drawn = []
    for variant in ("paper", "raster", "clamp"):
        for local in (True, False):
            for size in SIZES:
                for alpha in (0.0, 0.1, 0.5, 0.9, 1.0):
                    seed = SEEDS[len(drawn) % len(SEEDS)] if len(drawn) % 2 else int(rng.integers(-(2**63), 2**63 - 1))
                    drawn.append(
                        {"seed": seed, "size": size, "num": 5, "alpha": alpha, "variant": variant, "local": local}
                    )
    drawn.append({"seed": 3, "size": (64, 64), "num": 3, "alpha": 0.8, "variant": "paper", "local": True})
    return drawn


def test_permutations_are_those_of_python():
    """Fails for a carry that is lost between the halves of a word, a signed shift, or neighbours in another order."""
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node, such as Debian's package nodejs: apt-get install nodejs")
    asked = cases()
    assert sum(case["num"] for case in asked) >= 1000
    program = f"""
        import {{ draw }} from {json.dumps(SAMPLER.as_uri())};
        import {{ readFileSync }} from "node:fs";
        const cases = JSON.parse(readFileSync(0, "utf8"));
        console.log(JSON.stringify(cases.map(({{ seed, size, num, alpha, variant, local }}) =>
            draw(BigInt(seed), size, num, alpha, variant, local).map((p) => Array.from(p)))));
    """
    text = json.dumps([case | {"seed": str(case["seed"])} for case in asked])
    done = subprocess.run([node, "--input-type=module", "-e", program], input=text, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for case, found in zip(asked, json.loads(done.stdout), strict=True):
        shape = (case["num"],)
        expected = draw(case["seed"], case["size"], shape, case["alpha"], case["variant"], case["local"])
        assert found == expected.tolist(), case
