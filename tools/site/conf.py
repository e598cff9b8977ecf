# SPDX-License-Identifier: GPL-2.0-only
"""Configuration of Sphinx for the site that `tools/docs` builds, from the sources that `stage.py` puts together."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "uetproto"
author = "the authors of uetproto"
html_title = "uetproto"

extensions = ["myst_parser", "sphinx.ext.autodoc", "glossary", "citations"]
default_role = "code"  # docstrings write `name`
autodoc_typehints = "signature"
toc_object_entries = False  # the contents of every page would have a thousand names
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of signatures that the page does not describe
root_doc = "index"
nitpicky = True
myst_heading_anchors = 6
highlight_language = "none"
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"

html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_permalinks_icon = "#"
html_theme_options = {"navigation_with_keys": True}
