"""The documentation site: Sphinx, MyST and the pydata theme. `scripts/docs build` makes it, without the network.

Pages are plain Markdown that a Git host shows as well. Links lead from file to file. Formulas stand in dollars and
become MathML, which browsers show without a script; an ADR has the reasons.
"""

import os
import re
import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml

DOCS = Path(__file__).parent
ROOT = DOCS.parent
sys.path[:0] = [str(ROOT), str(DOCS / "_ext")]

import drstream  # noqa: E402  # the one beside these pages

project = "drstream"
author = "the drstream authors"
copyright = author
version = release = drstream.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "docstrings", "sphinx_copybutton"]

autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
python_maximum_signature_line_length = 90  # a parameter a line
toc_object_entries_show_parents = "hide"
# What the package itself calls, on policies, models and results; users do not.
INTERNAL = {
    *(
        "asked",
        "bind",
        "bind_lists",
        "bind_to",
        "fill",
        "fill_flat",
        "fill_tiles",
        "for_candidates",
        "logged",
        "rule",
        "steady",
    ),
    *("check_arrays", "check_savable", "fit_folds", "fit_forward", "from_parameters", "kept_parameters", "link"),
    *("known_labels", "needs_actions", "uses_context", "functions", "header", "on_candidates", "require_fit", "fitted"),
    *("about_models", "how", "how_far", "of", "of_grid", "pieces", "loaded", "row", "unexplained", "learned_on"),
    *("failure", "fitted_on", "of_policy", "of_shown", "level_name", "level_value", "targets", "about_bias"),
    *("as_costs", "headline", "checked_state"),
}

smartquotes = False  # quotes on these pages are code
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4  # links name headings as Git hosts do
nb_execution_mode = "off"  # the tests run notebooks; their outputs are kept in the files
nb_merge_streams = True

html_theme = "pydata_sphinx_theme"
html_title = "drstream"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "drstream"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = "$ "  # commands are copied without their prompt, and without what they print
copybutton_copy_empty_lines = False
copybutton_line_continuation_character = "\\"
html_sidebars = {"index": [], "coming": []}  # pages without others beside them

# Files outside of docs/ that are pages of the site. On a Git host, the page named here has a link to the file.
OUTSIDE = {"CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md", "bench/README.md": "measuring.md"}
LINK = re.compile(r"\]\((?!\w+:)([^)#\s]+)(#[^)\s]*)?\)")


def read_page(app, name, source):
    """A page of OUTSIDE becomes the text of its file; links to such files lead to their pages.

    A page that no table of contents names yet is added to that of the tasks.
    """
    if name == "tasks":
        tables = "\n".join(path.read_text() for path in DOCS.rglob("*.md") if "{toctree}" in path.read_text())
        named = set(re.findall(r"^([\w-]+)$", tables, re.MULTILINE)) | {"index"}
        new = sorted(path.stem for path in DOCS.glob("*.md") if path.stem not in named)
        source[0] = f"{source[0].rstrip().removesuffix('```')}{chr(10).join(new)}\n```\n"
    origin = next((ROOT / file for file, page in OUTSIDE.items() if page == f"{name}.md"), None)
    if origin is not None:
        source[0] = origin.read_text()
    here = (origin or DOCS / f"{name}.md").parent

    def redirected(match):
        target = Path(os.path.normpath(here / match[1]))
        inside = OUTSIDE.get(str(target.relative_to(ROOT)))
        if inside is None and origin is None:
            return match[0]
        page = DOCS / inside if inside else target
        page = page / "index.md" if page.is_dir() else page
        return f"]({os.path.relpath(page, (DOCS / name).parent)}{match[2] or ''})"

    source[0] = LINK.sub(redirected, source[0])


def skip_internal(app, what, name, obj, skip, options):
    return True if name in INTERNAL and what == "class" else None


def write_inline(writer, node):
    writer.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def write_block(writer, node):
    writer.body.append(writer.starttag(node, "div", CLASS="math", tabindex="0"))  # wide ones scroll, by keys too
    writer.body.append(tex2mathml(node.astext(), as_block=True))
    writer.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app):
    app.connect("source-read", read_page)
    app.connect("env-get-outdated", lambda app, env, added, changed, removed: ["tasks"] if added or removed else [])
    app.connect("autodoc-skip-member", skip_internal)
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
