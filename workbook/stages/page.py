"""An executed notebook as a page that needs no network: figures inside it, described; no script of another host."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbconvert
from jinja2 import DictLoader

from workbook.store.files import atomic_write

NO_ALT = "No description has been provided for this image"  # nbconvert's words
# nbconvert's without the scripts of its head, which come from other hosts, with each figure's alt text, and with
# the code of cells that hide it folded.
TEMPLATE = """
{%- extends 'index.html.j2' -%}
{%- block html_head_js -%}{%- endblock html_head_js -%}
{%- block html_head_js_mathjax -%}{%- endblock html_head_js_mathjax -%}
{%- block html_head_js_mermaidjs -%}{%- endblock html_head_js_mermaidjs -%}
{%- block input_group -%}
{%- if (cell.metadata.get("jupyter") or {}).get("source_hidden") -%}
<details class="code"><summary>Code</summary>{{ super() }}</details>
{%- else -%}
{{ super() }}
{%- endif -%}
{%- endblock input_group -%}
{%- block data_png scoped -%}
<div class="jp-RenderedImage jp-OutputArea-output {{ extra_class }}">
<img src="data:image/png;base64,{{ output.data['image/png'] | escape_html }}"
alt="{{ (output | get_metadata('alt', 'image/png') or no_alt) | escape_html }}">
</div>
{%- endblock data_png -%}
"""
ELSEWHERE = re.compile(
    r"<script(?=[^>]*(?:\bsrc=|type=\"module\"))[^>]*>.*?</script>|<link[^>]+href=\"https?://[^>]*>", re.DOTALL
)


def to_html(notebook: Any, path: str | Path, title: str) -> None:
    """Write the page. What an output's own HTML would load from elsewhere is left out."""
    for output in (output for cell in notebook.cells for output in cell.get("outputs", ())):
        if "text/html" in output.get("data", {}):
            output["data"]["text/html"] = ELSEWHERE.sub("", "".join(output["data"]["text/html"]))
    exporter = nbconvert.HTMLExporter(
        template_name="lab",
        template_file="page.html.j2",
        extra_loaders=[DictLoader({"page.html.j2": TEMPLATE.replace("no_alt", repr(NO_ALT))})],
        embed_images=True,
        exclude_input_prompt=True,
        exclude_output_prompt=True,
    )
    page, _ = exporter.from_notebook_node(notebook, resources={"metadata": {"name": title}})
    atomic_write(path, page)
