"""What the pages show works: their Python runs, their commands are parsed, their site is built."""

import importlib.util
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import contextmanager
from pathlib import Path

import pytest

from clop import cli
from clop.errors import UsageError
from clop.rl.envs.backends import PROCGEN, installed_backends
from clop.rl.games import DEFAULT_ALPHA, GAMES

ROOT = Path(__file__).parents[1]
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("docs/*.md"), ROOT / "README.md"])
LONGEST = 60
"""Lines of a worked example."""

with_procgen = pytest.mark.skipif(not set(PROCGEN) & set(installed_backends()), reason="no Procgen is installed")


def blocks(page, language="python"):
    """The code of a page, as it stands between fences of a language."""
    found, inside = [], None
    for line in (ROOT / page).read_text().splitlines():
        if line.startswith("```"):
            inside = None if inside is not None else line.removeprefix("```")
            if inside == language:
                found.append("")
        elif inside == language:
            found[-1] += f"{line}\n"
    return found


def lines(page):
    """All lines between fences without a language: what is typed, each without the words that explain it."""
    found = [line for block in blocks(page, "") for line in block.replace("\\\n", "").splitlines()]
    return [re.split(r"\s{2,}|\s#\s", line)[0] for line in found if line and not line.startswith(" ")]


def mentioned(page):
    """Commands in the running text that have flags; of these, what a command requires may be left out."""
    return [
        text
        for several in re.findall(r"`(clop [^`\n]+)`", (ROOT / page).read_text())
        for text in several.split(" && ")
        if " --" in text and " --help" not in text
    ]


def run(code, folder):
    (folder / "page.py").write_text(code)
    done = subprocess.run([sys.executable, "page.py"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_the_examples_of_the_python_page_run_one_after_another(tmp_path):
    """Fails for an example whose names or arguments are no longer those of the package."""
    pytest.importorskip("gymnasium")
    shown = blocks("docs/python.md")
    assert len(shown) >= 6
    (game,) = (block for block in shown if "class Corridor" in block)
    (tmp_path / "corridor.py").write_text(f"import numpy as np\n{game}")
    run("\n".join(shown), tmp_path)
    assert (tmp_path / "runs" / "corridor" / "summary.json").exists()


@pytest.mark.slow
@with_procgen
@pytest.mark.parametrize("page", ["docs/index.md", "docs/layer.md", "docs/recipes.md"])
def test_the_examples_of_a_page_run_one_after_another(page, tmp_path):
    if page == "docs/recipes.md":
        pytest.importorskip("stable_baselines3", reason='not installed: pip install "clop[sb3]"')
    shown = blocks(page)
    assert shown
    run("\n".join(shown), tmp_path)


WORKED = ("method", "encoder", "environment", "data set")


@pytest.mark.slow
@with_procgen
@pytest.mark.parametrize("what", WORKED)
def test_a_worked_example_of_the_architecture_page_is_short_and_runs(what, tmp_path):
    """Fails if a hook, a registry or a signature that it uses has changed, or if it has grown too long to be read."""
    _, _, section = (
        (ROOT / "docs/architecture.md").read_text().partition(f"## Add a{'n' if what[0] == 'e' else ''} {what}")
    )
    section = section.partition("\n## ")[0]
    (example,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(example.splitlines()) < LONGEST
    if what == "environment":
        pytest.importorskip("gymnasium")
        (tmp_path / "dots.py").write_text(example)
    assert run(example, tmp_path).strip()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_is_one_that_the_parser_takes(page):
    """Fails for a flag that was renamed, a target, an extra or a script that is gone, and an unknown program."""
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for line in lines(page):
        if loop := re.fullmatch(r"for .*; do [A-Z_]+=\S+ (clop .*) & done; wait", line):
            line = loop[1]
        program, *words = shlex.split(line)
        if program == "clop" and "|" not in words:  # where several stand for one another
            parse(words)
        elif program == "make":
            assert set(words) <= set(targets), line
        elif program == "python":
            source = (ROOT / words[0]).read_text()
            for flag in (word for word in words if word.startswith("--")):
                assert f'"{flag}"' in source, line
        elif program != "clop":
            assert (program, words[0]) == ("pip", "install"), f"nothing checks this command: {line}"
    assert extras(page) <= EXTRAS
    for text in mentioned(page):
        with suppress_required():
            parse(shlex.split(text)[1:])


EXTRAS = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])


def extras(page):
    """Those that a page names, as in clop[rl] and .[all]."""
    named = re.findall(r"(?:clop|\"\.)\[([a-z0-9,]+)\]", (ROOT / page).read_text())
    return {extra for several in named for extra in several.split(",")}


def parse(words):
    words = cli._with_dashes(words)
    cli._parser(words).parse_args(words)


@contextmanager
def suppress_required():
    try:
        yield
    except UsageError as error:
        if "are required" not in str(error):
            raise


def test_the_check_of_commands_sees_them_and_fails_for_a_wrong_one():
    """The control: commands are found on the pages, and a flag that does not exist is noticed."""
    commands = [line for page in PAGES for line in lines(page) if line.startswith("clop ")]
    assert len(commands) > 30
    assert extras("docs/install.md") > {"all", "rl"}
    with pytest.raises(UsageError, match="no-such-flag"), suppress_required():
        parse(["evaluate", "runs/a", "--no-such-flag"])


def test_the_page_of_questions_has_the_papers_alphas():
    """Fails if the table of the games and what is said of it part."""
    text = " ".join((ROOT / "docs/faq.md").read_text().split())
    games = {alpha: [name for name, game in GAMES.items() if game.clop_alpha == alpha] for alpha in (0.3, 0.6, 0.8)}
    words = {12: "twelve"}
    assert f"0.3 in {words[len(games[0.3])]} of the {len(GAMES)} games" in text
    assert f"0.6 in {' and '.join(games[0.6])}, 0.8 in {' and '.join(games[0.8])}" in text
    assert f"in games that the paper does not have, {DEFAULT_ALPHA}." in text


def test_every_page_is_in_the_menu_of_the_site():
    """Fails for a page that readers of the site would not find; the mending is one line in mkdocs.yml."""
    menu = re.findall(r":\s+([\w-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    missing = {path.name for path in ROOT.glob("docs/*.md")} - set(menu)
    assert not missing, f"add to nav in mkdocs.yml: {sorted(missing)}"
    assert len(menu) == len(set(menu))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mkdocs") is None, reason='not installed: pip install "clop[docs]"')
def test_the_site_is_built_without_a_warning_and_needs_no_network(tmp_path):
    """Fails for a link to nowhere, a docstring that cannot be read, and a page that fetches a font or a script."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    methods = (tmp_path / "site" / "methods.html").read_text()
    assert methods.count("<math") > 40
    assert "arithmatex" not in methods  # no formula is left as TeX
    api = (tmp_path / "site" / "api.html").read_text()
    assert "ClopCnnPolicy" in api
    assert not re.findall(r":(?:class|func|meth|data):", api)
    for page in (tmp_path / "site").rglob("*.html"):
        assert not re.findall(r'(?:src|href)="https?://[^"]*\.(?:js|css)', page.read_text()), page
        assert "fonts.g" not in page.read_text(), page


def test_the_examples_of_the_page_of_statistics_run():
    """Fails for an example whose names or arguments are no longer those of the package."""
    (shown,) = blocks("docs/statistics.md")
    done = subprocess.run([sys.executable, "-c", shown], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "starpilot clop" in done.stdout
