"""The page under `/docs`: the OpenAPI document as plain HTML, complete without a network."""

import json
from html import escape
from typing import Any

_STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;
color:#222;background:#fff}
code,pre{font:14px/1.45 ui-monospace,monospace}
pre{background:#f4f4f2;padding:.75rem;overflow:auto;border-radius:4px}
h2{margin-top:2.5rem;border-bottom:1px solid #ddd}
.method{color:#0a5;text-transform:uppercase;font-weight:700;margin-right:.5rem}
dt{font-family:ui-monospace,monospace}
summary{cursor:pointer}
@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}pre{background:#242424}
a{color:#8bf}}
"""


def render(document: dict[str, Any]) -> str:
    """Write the document as one page."""
    info = document["info"]
    operations = "".join(
        _operation(path, method, entry)
        for path, entries in document["paths"].items()
        for method, entry in entries.items()
    )
    schemas = "".join(
        _schema(name, schema) for name, schema in document["components"]["schemas"].items()
    )
    title = escape(info["title"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>"
        f"<h1>{title} {escape(info['version'])}</h1><p>{escape(info['description'])}</p>"
        '<p>For tools: <a href="/openapi.json">openapi.json</a></p>'
        f"<h2>Endpoints</h2>{operations}<h2>Schemas</h2>{schemas}</body></html>"
    )


def _operation(path: str, method: str, entry: dict[str, Any]) -> str:
    parts = [f'<h3><span class="method">{method}</span><code>{escape(path)}</code></h3>']
    parts.append(f"<p>{escape(entry['summary'])}.</p>")
    if "description" in entry:
        parts.append(f"<p>{escape(entry['description'])}</p>")
    if "requestBody" in entry:
        parts.append(f"<p>Body: {_links(entry['requestBody'])}</p>")
    parts.append("<dl>")
    for status, answer in entry["responses"].items():
        links = _links(answer)
        text = f"{escape(answer['description'])} {links}"
        parts.append(f"<dt>{status}</dt><dd>{text}</dd>")
    parts.append("</dl>")
    return "".join(parts)


def _links(body: dict[str, Any]) -> str:
    schemas = [media["schema"] for media in body.get("content", {}).values()]
    parts = [part for schema in schemas for part in schema.get("anyOf", [schema])]
    references = [part["$ref"] for part in parts if "$ref" in part]
    names = [reference.rsplit("/", 1)[-1] for reference in references]
    return " or ".join(f'<a href="#{escape(name)}">{escape(name)}</a>' for name in names)


def _schema(name: str, schema: dict[str, Any]) -> str:
    text = escape(json.dumps(schema, indent=2, ensure_ascii=False))
    shown = escape(name)
    return (
        f'<details id="{shown}"><summary><code>{shown}</code></summary><pre>{text}</pre></details>'
    )
