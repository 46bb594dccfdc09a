"""Hooks of the site: pages from other folders of the repository, links to them, and the options of all commands."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]

ADDED = {
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    **{f"examples/{path.name}": f"examples/{path.name}" for path in sorted((ROOT / "examples").glob("*.*"))},
    "assets/mnist-schedules.npz": "src/s2e/experiments/schedule_table/mnist-schedules.npz",
}
"""Files of the site that are elsewhere in the repository, by their path in the site."""

PAGES = {**{source: page for page, source in ADDED.items()}, "README.md": "index.md", "examples": "examples/README.md"}
"""Where links to files outside docs/ lead."""

LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
COMMANDS = "<!-- commands -->"
ELSEWHERE = re.compile(r"<(?:script|link|img|iframe)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>")


def on_files(files: Any, config: Any) -> Any:
    """Add files from outside docs/."""
    for page, source in ADDED.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / source)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Write links to files of the repository as links within the site; insert the options of the commands."""
    if COMMANDS in markdown:
        markdown = markdown.replace(COMMANDS, "\n".join(_commands()))
    own = page.file.src_uri
    source = ADDED.get(own, f"docs/{own}")

    def within_the_site(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[2]))
        uri = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        return link[0] if uri is None else f"{link[1]}{posixpath.relpath(uri, posixpath.dirname(own) or '.')}{link[3]}"

    return LINK.sub(within_the_site, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Refuse a page that loads something from another server: the site works offline."""
    if found := ELSEWHERE.search(output):
        raise PluginError(f"{page.file.src_uri} loads from another server: {found[0]}")
    return output


def _commands() -> Iterator[str]:
    """Return a section with a table of options for each command, from the program itself."""
    from typer.main import get_command

    from s2e.cli import app

    yield from _group(get_command(app), "s2e")


def _group(command: Any, name: str) -> Iterator[str]:
    for inner in getattr(command, "commands", {}).values():
        path = f"{name} {inner.name}"
        if hasattr(inner, "commands"):
            yield from _group(inner, path)
            continue
        yield from (f"\n## {path}\n", inner.help.split("\n\n")[0], "\n| option | meaning |\n|---|---|")
        yield from map(_row, inner.params)


def _row(parameter: Any) -> str:
    """Return the row of a table for an option or an argument."""
    option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if option else [(parameter.metavar or parameter.name).upper()]
    shown = parameter.default
    hidden = shown is None or callable(shown) or shown == "" or isinstance(shown, bool) or parameter.required
    about = re.sub(r"\s+", " ", parameter.help or "").replace("|", "\\|") + ("" if hidden else f" (default: `{shown}`)")
    return f"| {' '.join(f'`{name}`' for name in names)} | {about} |"
