"""How Sphinx makes the site of the pages in this repository: `make docs`.

The pages stay as they are on any viewer of repositories. What the site adds is made here: the parts and their order are
the tables of docs/README.md, the list of keys is that of docs/pipeline.schema.json, Python names have their docstrings.
"""

import json
import re
import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.ext.napoleon import Config, GoogleDocstring, NumpyDocstring
from sphinx.util import logging

SITE = Path(__file__).resolve().parent
ROOT = SITE.parents[1]
sys.path[:0] = [str(SITE), str(ROOT)]

from keys import keys_page  # noqa: E402 - its folder is none of a package
from names import as_markup, as_read, names_page  # noqa: E402 - as above
from notebooks import page  # noqa: E402 - as above

INDEX = "docs/README"

project = "stream_dp"
copyright = "the authors of stream_dp, Apache-2.0"  # noqa: A001 - Sphinx's name
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = INDEX
include_patterns = [
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "deploy/README.md", "docs/**.md", "examples/*/README.md",
]  # fmt: skip
exclude_patterns = [".*", "build", "stream_dp*", "tests", "examples/*/run"]
myst_heading_anchors = 6
myst_links_external_new_tab = False
suppress_warnings = ["myst.header"]  # sections of CHANGELOG repeat their names

add_module_names = False
python_use_unqualified_type_names = True
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True

html_theme = "furo"
html_title = "stream_dp"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

LINK = re.compile(r"^\| \[([^\]]+)\]\(([^)#]+\.md)\) \|", re.MULTILINE)
# What a browser would load by itself from another host; a link that a reader follows is none.
ELSEWHERE = re.compile(
    r"""<(?:script|img|iframe|link)\b[^>]*?(?:src|href)=["'](?:https?:)?//[^"']+|url\(["']?https?:[^)]+|@import\s*["']http[^"']+"""
)
log = logging.getLogger(__name__)


def toctree(pages: list[tuple[str, str]], caption: str = "") -> str:
    """A table of contents, of titles and paths, that the sidebar shows and the page does not."""
    named = f":caption: {caption}\n" if caption else ""
    entries = "".join(f"{title} </docs/{path}>\n" for title, path in pages)
    return f"\n```{{toctree}}\n:hidden:\n{named}\n{entries}```\n"


def parts(text: str) -> tuple[str, dict[str, str]]:
    """What the index is followed by, and what other pages are.

    A part is a heading of the second order with a table of pages. Under one of the third order stand pages that fold
    below the first of them.
    """
    index, others = "", {}
    for part in text.split("\n## ")[1:]:
        title, *folded = part.split("\n### ")
        pages = LINK.findall(title)
        for section in folded:
            first, *rest = LINK.findall(section)
            pages.append(first)
            others[f"docs/{first[1].removesuffix('.md')}"] = toctree(rest)
        if pages:
            index += toctree(pages, title.partition("\n")[0])
    return index, others


def add_to_source(app: Sphinx, name: str, source: list[str]) -> None:
    """Give pages the contents that follow them, and what stands elsewhere: keys, Python names, notebooks."""
    index, others = parts((ROOT / f"{INDEX}.md").read_text(encoding="utf-8"))
    source[0] += index if name == INDEX else others.get(name, "")
    if name == "docs/keys":
        docs = ROOT / "docs"
        schema = json.loads((docs / "pipeline.schema.json").read_text(encoding="utf-8"))
        source[0] += keys_page(schema, (docs / "pipeline.md").read_text(encoding="utf-8"))
    if name == "examples/06_notebook/README":
        for path in sorted((ROOT / name).parent.glob("*.ipynb")):
            source[0] += "\n" + page(json.loads(path.read_text(encoding="utf-8")))
    if name == "docs/python_names":
        source[0] = names_page(source[0])


def written_as_markup(
    app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]
) -> None:
    """Sphinx calls this for each docstring."""
    as_markup(lines)
    for form in (NumpyDocstring, GoogleDocstring):
        if what != "property":  # it would take for a type what stands before a colon
            lines[:] = form(lines, Config(), app, what, name, value, options).lines()


def shown_signature(
    app: Sphinx, what: str, name: str, value: object, options: object, given: str | None, returned: str | None
) -> tuple[str | None, str | None]:  # fmt: skip
    """Sphinx calls this for each signature."""
    return as_read(given), as_read(returned)


def loads_nothing_from_elsewhere(app: Sphinx, error: Exception | None) -> None:
    """Warn, which fails the build, of each page or style that would load something from another host."""
    for file in (*app.outdir.rglob("*.html"), *app.outdir.rglob("*.css")):
        for found in ELSEWHERE.findall(file.read_text(encoding="utf-8")):
            log.warning("%s loads from elsewhere: %s", file.relative_to(app.outdir), found)
    (app.outdir / "index.html").write_text(
        f'<!doctype html><meta charset="utf-8"><title>{project}</title>'
        f'<meta http-equiv="refresh" content="0; url={INDEX}.html"><a href="{INDEX}.html">{project}</a>\n',
        encoding="utf-8",
    )


def setup(app: Sphinx) -> None:
    """Sphinx calls this."""
    app.add_lexer("mermaid", TextLexer)
    app.connect("source-read", add_to_source)
    app.connect("autodoc-process-docstring", written_as_markup)
    app.connect("autodoc-process-signature", shown_signature)
    app.connect("build-finished", loads_nothing_from_elsewhere)
