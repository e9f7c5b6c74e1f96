#!/usr/bin/env python3
"""Writes the CTest file of one Catch2 program: one test a test case.

Catch2's own script for this cuts a name at a semicolon and takes no property with a list in it (two labels).
"""
import argparse
import re
import subprocess
import sys


def listed_names(program, catch_version):
    """The program's test names. Catch2 version 2 exits with their count, version 3 with 0."""
    arguments = ["--list-test-names-only"] if catch_version.startswith("2.") else ["--list-tests", "--verbosity", "quiet"]
    listing = subprocess.run([program, *arguments], stdout=subprocess.PIPE, text=True, check=False)
    names = [line for line in listing.stdout.splitlines() if line.strip()]
    if not names or listing.returncode < 0:
        sys.exit(f"{program} lists no tests (exit status {listing.returncode})")
    return names


def as_test_spec(name):
    """The argument that selects exactly this case."""
    return re.sub(r'([\\,\[\]"])', r"\\\1", name)


def bracket(text):
    return f"[==[{text}]==]"


def ctest_lines(program, suite, names, labels, directory):
    for name in names:
        test = bracket(f"{suite}/{name}")
        # NoTests: a name that selects nothing would pass otherwise.
        yield f"add_test({test} {bracket(program)} {bracket(as_test_spec(name))} -w NoTests)"
        yield (
            f"set_tests_properties({test} PROPERTIES WORKING_DIRECTORY {bracket(directory)} LABELS {bracket(labels)}"
            " SKIP_RETURN_CODE 77 ENVIRONMENT W4MOE_TEST_SKIP_CODE=77)"
        )


def main():
    parser = argparse.ArgumentParser()
    for option in ("program", "suite", "labels", "directory", "catch-version", "output"):
        parser.add_argument(f"--{option}", required=True)
    arguments = parser.parse_args()
    names = listed_names(arguments.program, arguments.catch_version)
    lines = ctest_lines(arguments.program, arguments.suite, names, arguments.labels, arguments.directory)
    with open(arguments.output, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


if __name__ == "__main__":
    main()
