"""What the documentation site needs besides Markdown: formulas as MathML, links into the repository, readable roles.

Formulas are converted when the site is built, so that a page needs no script and no network to show them. Pages link to
files of the repository beside docs/; pictures among them are copied into the site, other links become plain text.
"""

import html
import re
from pathlib import Path
from typing import Any

from griffe import Extension
from latex2mathml.converter import convert
from mkdocs.structure.files import File

ROOT = Path(__file__).parent
PICTURES = (".png", ".jpg", ".gif", ".svg", ".webp")
_OUTSIDE = re.compile(r"(?P<picture>!?)\[(?P<text>[^\]]*)\]\(\.\./(?P<path>[^)#\s]+)[^)]*\)")
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_ROLE = re.compile(r":(?:func|class|meth|mod|data|attr|exc):`~?([^`]+)`")
_MATH_ROLE = re.compile(r":math:`([^`]+)`")
_MATH_BLOCK = re.compile(r"^\.\. math::[ ]*(.*(?:\n(?:[ ]{4,}.*|[ ]*$))*)", re.MULTILINE)


def on_config(config: Any) -> Any:
    """Keep those pages of the menu that exist."""
    config["nav"] = _existing(config["nav"], Path(config["docs_dir"]))
    return config


def _existing(entries: list[Any], docs: Path) -> list[Any]:
    kept = []
    for entry in entries:
        ((title, page),) = entry.items()
        if isinstance(page, list):
            kept.append({title: _existing(page, docs)})
        elif (docs / page).exists():
            kept.append(entry)
    return kept


def on_files(files: Any, config: Any) -> Any:
    """Add the pictures that pages show from outside of docs/."""
    for page in Path(config["docs_dir"]).glob("*.md"):
        for match in _OUTSIDE.finditer(page.read_text()):
            path = match["path"]
            if path.endswith(PICTURES) and files.get_file_from_path(path) is None:
                if not (ROOT / path).is_file():
                    raise ValueError(f"{page.name} shows {path}, which is not in the repository")
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Pictures from where :func:`on_files` put them; the text of links to what the site does not have."""
    return _OUTSIDE.sub(_inside, markdown)


def _inside(match: re.Match[str]) -> str:
    if match["path"].endswith(PICTURES):
        return f"{match['picture']}[{match['text']}]({match['path']})"
    if not (ROOT / match["path"]).exists():
        raise ValueError(f"a page links to {match['path']}, which is not in the repository")
    return match["text"]


def on_page_content(content: str, **_: Any) -> str:
    """Formulas as MathML."""
    return _FORMULA.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    return convert(html.unescape(match[3]).strip(), display="block" if match[2] == "[" else "inline")


class ReadableRoles(Extension):
    """Docstrings have Sphinx's roles; here they become code and formulas of Markdown."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    text = _MATH_BLOCK.sub(lambda match: f"$$\n{_dedented(match[1])}\n$$\n", text)
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)  # the name under which code is shown as code
    text = _MATH_ROLE.sub(r"$\1$", text)
    return _ROLE.sub(r"`\1`", text)


def _dedented(formula: str) -> str:
    return "\n".join(line.strip() for line in formula.strip().splitlines())
