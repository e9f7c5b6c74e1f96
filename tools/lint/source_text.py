"""What the lints share: which files there are, and C++ text with comments and literals blanked out."""
import os
import re
from dataclasses import dataclass

CPP_SUFFIXES = (".h", ".hpp", ".cuh", ".cu", ".cpp", ".c")

# One alternative a thing that may hide code-like text. Raw strings come first: they may hold quotes and slashes.
_HIDDEN = re.compile(
    r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"'
    r"|//[^\n]*"
    r"|/\*.*?\*/"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'",
    re.DOTALL,
)


@dataclass(frozen=True)
class Finding:
    """One fault: where, and what to do about it."""

    path: str
    line: int
    message: str

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}"


def blank(text, keep_strings=False):
    """`text` with comments and literals replaced by spaces; line numbers and columns stay."""

    def spaces(match):
        found = match.group(0)
        if keep_strings and not found.startswith("/"):
            return found
        return re.sub(r"[^\n]", " ", found)

    return _HIDDEN.sub(spaces, text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


def closing(text, position, pair):
    """Index of the bracket that closes the one at `position`, or -1. `pair` is "()", "{}" or "[]"."""
    depth = 0
    for index in range(position, len(text)):
        if text[index] == pair[0]:
            depth += 1
        elif text[index] == pair[1]:
            depth -= 1
            if depth == 0:
                return index
    return -1


def files(root, folders, suffixes=CPP_SUFFIXES):
    """Paths relative to `root` (with '/') of every file with such a suffix below the folders, sorted."""
    found = []
    for folder in folders:
        for directory, names, entries in os.walk(os.path.join(root, folder)):
            names[:] = sorted(name for name in names if not name.startswith((".", "__")))
            for entry in entries:
                if entry.endswith(suffixes):
                    found.append(os.path.relpath(os.path.join(directory, entry), root).replace(os.sep, "/"))
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def default_root():
    return os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def report(name, findings, checked):
    """Prints the findings and the count of files read; the exit code."""
    for finding in findings:
        print(finding)
    print(f"{name}: {checked} files, {len(findings)} findings")
    # A lint that read nothing has looked in the wrong place, which must not pass as clean.
    return 1 if findings or checked == 0 else 0
