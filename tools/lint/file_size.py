#!/usr/bin/env python3
"""Files stay readable in one sitting: above 400 lines a file is named, above 700 it is a fault.

A file that is a table by nature is listed below with the reason.
"""
import sys

import source_text as st

NAMED_LINES = 400
FAULT_LINES = 700
FOLDERS = ("templates", "generator", "runtime", "cache", "tools", "tests")
TABLES = {
    # "path": "why it is one table and not several files",
}


def check(root):
    findings, checked = [], 0
    for path in st.files(root, FOLDERS, st.CPP_SUFFIXES + (".py", ".cmake")):
        checked += 1
        lines = st.read(root, path).count("\n")
        if path in TABLES or lines <= NAMED_LINES:
            continue
        if lines > FAULT_LINES:
            findings.append(st.Finding(path, lines, f"{lines} lines: split it, or list it in tools/lint/file_size.py with a reason"))
        else:
            print(f"{path}: {lines} lines, more than the usual {NAMED_LINES}")
    return findings, checked


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else st.default_root()
    sys.exit(st.report("file_size", *check(root)))


if __name__ == "__main__":
    main()
