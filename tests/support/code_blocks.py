"""Code blocks and commands of Markdown pages."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
SHELL = ("shell", "bash", "console")
PROGRAMS = ("s2e", "make", "pip", "python", "pytest", "optuna-dashboard", "srun")
MARK = re.compile(r"<!-- code: (not run|parsed), (\w.*?) -->")


@dataclass(frozen=True)
class Block:
    """A code block of a page.

    Attributes:
        page: path in the repository.
        line: line of the page, from 1.
        language: "python", "shell", or another one, which is not run.
        text: its content.
        mark: "not run" or "parsed" where a comment before the block says so, with a reason; else empty.
    """

    page: str
    line: int
    language: str
    text: str
    mark: str


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page, fenced or indented; an indented one is shell if it begins with a program."""
    tokens, found, mark = MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")), [], ""
    for token in tokens:
        if token.type in ("fence", "code_block"):
            language = token.info.split()[0] if token.info.strip() else _language(token)
            line = token.map[0] + 1 if token.map else 0
            found.append(Block(str(page.relative_to(ROOT)), line, language, token.content, mark))
        marked = MARK.search(token.content) if token.type == "html_block" else None
        mark = marked[1] if marked else ""
    return found


def _language(token: Token) -> str:
    programs = [program_of(command) for command in commands(token.content)]
    return "shell" if any(program in PROGRAMS for program in programs) or token.content.startswith("#!") else "text"


def inline_commands(page: Path) -> Iterator[str]:
    """Return the commands of `s2e` within sentences and tables, those with an ellipsis left out."""
    for token in MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8")):
        for child in token.children or []:
            if child.type == "code_inline" and child.content.startswith("s2e ") and "…" not in child.content:
                yield child.content


def commands(text: str) -> list[str]:
    """Return the commands of a shell block, without comments and assignments; continued lines are joined."""
    lines = text.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not re.match(r"\s*(#|\w+=)|sleep ", line)]


def program_of(command: str) -> str:
    """Return the name of the program that a command runs."""
    return Path(command.split()[0]).name


def arguments(command: str) -> list[str]:
    """Return the arguments of the `s2e` in a command, which another program may start."""
    words = shlex.split(command.removesuffix("&"), comments=True)
    for position, word in enumerate(words):
        if word.startswith("s2e "):  # a command in quotes, for a shell
            return arguments(word)
        if Path(word).name == "s2e":
            return words[position + 1 :]
    return []
