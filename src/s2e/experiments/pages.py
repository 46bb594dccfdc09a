"""The page of an experiment: README.md with tables and figures, the command, and all that its numbers depend on."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from s2e.experiments.claims import Claim
from s2e.runs import CONFIG, Run
from s2e.specs import LAPTOP, leaves

PAGE = "README.md"
RESULT = "result.json"

SMALL_SCALE = """**Made at the scale of a laptop**, with few samples, epochs, seeds and searches: the verdicts show that
the command works, and say little about the claims."""


PARSED = "<!-- code: parsed, the command of this page -->"
"""Comment before a command that tests of documentation parse but do not run."""


@dataclass(frozen=True)
class Section:
    """A section of a page.

    Attributes:
        title: its heading; empty for none.
        paragraphs: texts, tables and figures, in Markdown.
    """

    title: str
    paragraphs: Sequence[str]

    def markdown(self) -> str:
        """Return the section as Markdown."""
        heading = [f"## {self.title}"] if self.title else []
        return "\n\n".join([*heading, *self.paragraphs])


def page(title: str, sections: Iterable[Section]) -> str:
    """Return a page as Markdown."""
    return "\n\n".join([f"# {title}", *(section.markdown() for section in sections)]) + "\n"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as Markdown; the first column is text, the others are numbers."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |" for line in lines)


def figure(name: str, text: str) -> str:
    """Return a figure of the same folder, with its description."""
    return f"![{text}]({name}.png)"


def files(names: Iterable[str]) -> str:
    """Return links to files of the same folder."""
    return ", ".join(f"[{name}]({name})" for name in names)


def command_line(command: str, options: type, stored: Mapping[str, Any]) -> str:
    """Return the command with the options that differ from their defaults.

    Args:
        command: its name.
        options: the class of its options.
        stored: their values, as in `config.json`.
    """
    words = ["s2e", *command.split()]
    scaled: Mapping[str, Any] = getattr(options, "AT_LAPTOP", {}) if stored.get("scale") == "laptop" else {}
    for leaf, default in leaves(options):
        value, usual = stored.get(leaf.name, default), scaled.get(leaf.name, default)
        if value == (list(usual) if isinstance(usual, tuple) else usual):
            continue
        flag = leaf.metadata.get("flag", f"--{leaf.name.replace('_', '-')}")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif leaf.metadata.get("argument"):
            words.insert(1 + len(command.split()), str(value))
        elif isinstance(value, list) and leaf.metadata.get("repeated"):
            words += [word for each in value for word in (flag, str(each))]
        else:
            words += [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return shlex.join(words)


def how_made(run: Run, options: type, command: str, made: Mapping[str, Mapping[str, Any]]) -> Section:
    """Return a section with the command, seed, versions, and the device and time of each part.

    Args:
        run: the experiment.
        options: the class of its options.
        command: its name.
        made: `device`, `seconds` and `data_fingerprint` of each part, by its name.
    """
    config = run.read_json(CONFIG)
    stored, versions = config["options"], config["versions"]
    rows = [
        [name, str(part["device"]), f"{part['seconds']:.0f}", str(part["data_fingerprint"])]
        for name, part in made.items()
    ]
    drawn = [f"Seed {stored['seed']}; scale {stored.get('scale', 'paper')}; "] if "seed" in stored else []
    about = [
        f"{''.join(drawn)}{', '.join(f'{name} {version}' for name, version in versions.items())}.",
        "The time of a part that was resumed is that of its last session; of comparisons that of all sessions, each up "
        "to its last training.",
    ]
    return Section(
        "How it was made",
        [
            PARSED,
            f"    {command_line(command, options, stored)}",
            "\n".join(about),
            table(["part", "device", "seconds", "data fingerprint"], rows),
        ],
    )


def claims_section(claims: Sequence[Claim], scale: str) -> Section:
    """Return a section with the claims of the paper, and what was found at a scale."""
    rows = [[claim.source, claim.text, f"**{claim.verdict.value}**", claim.found] for claim in claims]
    lines = [["paper", "claim", "verdict", "found here"], ["---"] * 4, *rows]
    small = [SMALL_SCALE] if scale == LAPTOP else []
    text = "\n".join(f"| {' | '.join(row)} |" for row in lines)
    return Section("What the paper claims, and what was found", [*small, text])


def percent(share: float | None, deviation: float | None = None) -> str:
    """Write an accuracy in percent with its deviation, as 97.83 ± 0.06; a dash where it is unknown."""
    if share is None:
        return "—"
    return f"{100 * share:.2f}" + ("" if deviation is None else f" ± {100 * deviation:.2f}")


def cell(row: Mapping[str, Any], name: str, *, bold: bool = False) -> str:
    """Write a mean with its deviation of a row of `summarise`; a dash where it is missing."""
    figure_of = row.get(name) or {"mean": None, "std": None}
    text = percent(figure_of["mean"], figure_of["std"])
    return f"**{text}**" if bold else text


def made_of(parts: Mapping[str, Run]) -> dict[str, dict[str, Any]]:
    """Return device, time and fingerprint of the data of finished runs, by their names."""
    return {
        name: {name: part.read_json(RESULT)[name] for name in ("device", "seconds")}
        | {"data_fingerprint": part.read_json(CONFIG)["data_fingerprint"]}
        for name, part in parts.items()
    }
