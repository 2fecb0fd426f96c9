"""Code blocks of README and docs, and how to follow a page as a reader would."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LESS = [
    (r"(updates=)\d+", r"\g<1>20, final_episodes=5, eval_episodes=5"),
    (r"(\bepisodes=)\d+", r"\g<1>20"),
    (r'(collect\("\w+", "\w+")\)', r"\1, episodes=20)"),
    (r"(merlin train .*)--updates \d+", r"\1--updates 20 --final-episodes 5 --eval-episodes 5"),
    (r"(merlin eval .*--episodes) \d+", r"\1 5"),
    (r"((?:collect|train) .*--episodes) \d+", r"\1 30"),
    (r"(?m)^(merlin collect (?!.*--episodes).*)$", r"\1 --episodes 30"),
    (
        r"(?m)^(merlin train (?!.*--updates)(?!.*--resume).*)$",
        r"\1 --updates 20 --final-episodes 5 --eval-episodes 5",
    ),
]
"""The same commands with less work."""
SMALL_HAZARD = "from merlin.learners import distance\n\ndistance.HIDDEN = (64, 64)\n"
"""Before Python that trains Merlin-map: most of a short run goes into its model of the steps to a
goal."""


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and content of every code block."""
    return re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


def cheaper(text: str) -> str:
    for pattern, replacement in LESS:
        text = re.sub(pattern, replacement, text)
    return text


def commands(page: Path) -> list[list[str]]:
    """The arguments of every `merlin` command in the page's blocks."""
    found = []
    for language, content in blocks(page):
        if language in ("", "sh"):
            lines = content.replace("\\\n", " ").splitlines()
            words = [shlex.split(line, comments=True) for line in lines if "merlin " in line]
            found += [one for line in words for one in _separate(line)]
    return found


def _separate(words: list[str]) -> list[list[str]]:
    """A line's commands, without what they print to and without variables in front."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word in ("&&", "|", ";"):
            parts.append([])
        else:
            parts[-1].append(word)
    kept = []
    for part in parts:
        part = part[: part.index(">")] if ">" in part else part
        while part and re.fullmatch(r"[A-Z_]+=\S*", part[0]):
            part = part[1:]
        if part and part[0] == "merlin":
            kept.append(part[1:])
    return kept


def follow(page: Path, folder: Path, change=cheaper) -> list[str]:
    """Do what a tutorial says, block by block; what each block printed.

    Python that starts with the name of a file is saved under it; other Python is one session.
    What installs the package is left out.
    """
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    session, printed = "", []
    for language, content in blocks(page):
        content = change(content)
        if language == "python" and (name := re.match(r"# (\w+\.py)\n", content)):
            (folder / name[1]).write_text(content)
            continue
        if language == "python":
            session += content
            before = SMALL_HAZARD if '"merlin-map"' in session else ""
            command = [sys.executable, "-c", before + session]
        elif language == "sh" or (not language and not content.startswith("pip ")):
            command = ["bash", "-e", "-c", content]
        else:
            continue
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, env={**os.environ, "PATH": path}
        )
        assert done.returncode == 0, f"{content}\n{done.stdout}{done.stderr}"
        printed.append(done.stdout)
    return printed
