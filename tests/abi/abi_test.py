#!/usr/bin/env python3
"""w4moe.h and libw4moe_c.so against the committed lists.

symbols.txt has what the library exports, with its version node; interface.txt has every prototype, every value of an enumeration, and
size and offset of every structure and member. A line that goes or changes needs a new W4MOE_ABI_VERSION; lines that come are recorded
with W4MOE_UPDATE_GOLDEN=1. Arguments: the library, a work folder, the C++ compiler.
"""
import os
import re
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
INCLUDE = os.path.join(HERE, "..", "..", "runtime", "include")
LIBRARY = WORK = COMPILER = ""


def run(*command):
    result = subprocess.run(command, text=True, capture_output=True, check=False)
    if result.returncode != 0:
        raise AssertionError(f"{' '.join(command)} exited with {result.returncode}:\n{result.stdout}{result.stderr}")
    return result.stdout


def header():
    """The header without comments, preprocessor lines and line breaks."""
    with open(os.path.join(INCLUDE, "w4moe", "w4moe.h"), encoding="utf-8") as file:
        text = re.sub(r"/\*.*?\*/", " ", file.read(), flags=re.S)
    text = re.sub(r"(?m)^[ \t]*#(?:.*\\\n)*.*$", "", text)
    return re.sub(r"\s+", " ", text)


def prototypes(text):
    return sorted(re.sub(r"\s+", " ", found).strip() for found in re.findall(r"W4MOE_API ([^;{]*\));", text))


def enumerators(text):
    names = []
    for body in re.findall(r"enum \{([^}]*)\}", text):
        names += re.findall(r"\b(W4MOE_\w+)", body)
    return names


def structures(text):
    found = {}
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text):
        members = []
        for declaration in body.split(";"):
            pointer = re.search(r"\(\*(\w+)\)", declaration)
            plain = re.search(r"(\w+)(?:\[\d+\])?\s*$", declaration.strip())
            if pointer or plain:
                members.append((pointer or plain)[1])
        found[name] = members
    return found


def measured(language, standard):
    """Values, sizes and offsets as a compiler of this language sees them."""
    text = header()
    lines = ['#include "w4moe/w4moe.h"', "#include <stdio.h>", "int main(void) {"]
    for name in enumerators(text):
        lines.append(f'  printf("{name} = %ld\\n", (long)({name}));')
    lines.append('  printf("W4MOE_ABI_VERSION = %ld\\n", (long)W4MOE_ABI_VERSION);')
    for name, members in structures(text).items():
        lines.append(f'  printf("{name}: %lu bytes\\n", (unsigned long)sizeof({name}));')
        for member in members:
            lines.append(f'  printf("{name}.{member} at %lu, %lu bytes\\n", (unsigned long)offsetof({name}, {member}), (unsigned long)sizeof((({name}*)0)->{member}));')
    lines += ["  return 0;", "}"]
    source = os.path.join(WORK, "layout." + language)
    with open(source, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")
    program = os.path.join(WORK, "layout_" + language)
    strict = ["-Wall", "-Wextra", "-pedantic", "-Werror"]
    run(COMPILER, "-x", "c" if language == "c" else "c++", f"-std={standard}", *strict, f"-I{INCLUDE}", "-c", source, "-o", program + ".o")
    run(COMPILER, program + ".o", "-o", program)
    return run(program)


class Abi(unittest.TestCase):
    def compare(self, name, text):
        path = os.path.join(HERE, name)
        if os.environ.get("W4MOE_UPDATE_GOLDEN"):
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        with open(path, encoding="utf-8") as file:
            recorded = file.read()
        self.maxDiff = None
        self.assertEqual(recorded.splitlines(), text.splitlines(), f"tests/abi/{name}: additions are recorded with W4MOE_UPDATE_GOLDEN=1, anything else raises W4MOE_ABI_VERSION")

    def test_symbols_are_the_committed_ones(self):
        listing = run("nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY)
        names = sorted(line.split()[-1] for line in listing.splitlines() if not re.search(r" A W4MOE_C_\d+$", line.split("@@")[0]))
        self.compare("symbols.txt", "\n".join(names) + "\n")

    def test_every_symbol_is_declared_and_every_declaration_defined(self):
        declared = sorted(re.search(r"(w4moe_\w+)\(", prototype)[1] for prototype in prototypes(header()))
        with open(os.path.join(HERE, "symbols.txt"), encoding="utf-8") as file:
            exported = sorted(line.split("@")[0] for line in file.read().split())
        self.assertEqual(declared, exported)

    def test_prototypes_values_sizes_and_offsets_are_the_committed_ones(self):
        as_c, as_cpp = measured("c", "c11"), measured("cpp", "c++17")
        self.assertEqual(as_c, as_cpp)
        self.compare("interface.txt", "\n".join(prototypes(header())) + "\n" + as_c)

    def test_structures_that_grow_begin_with_their_size(self):
        fixed = {"w4moe_tensor", "w4moe_operand", "w4moe_matrix"}
        for name, members in structures(header()).items():
            if name not in fixed:
                self.assertEqual(members[0], "struct_size", name)

    def test_the_soname_is_the_abi_version(self):
        with open(os.path.join(INCLUDE, "w4moe", "w4moe.h"), encoding="utf-8") as file:
            version = re.search(r"#define W4MOE_ABI_VERSION (\d+)", file.read())[1]
        self.assertIn(f"Library soname: [libw4moe_c.so.{version}]", run("readelf", "-d", LIBRARY))
        with open(os.path.join(HERE, "symbols.txt"), encoding="utf-8") as file:
            self.assertIn(f"@@W4MOE_C_{version}", file.read())

    def test_every_function_is_documented(self):
        with open(os.path.join(INCLUDE, "w4moe", "w4moe.h"), encoding="utf-8") as file:
            text = file.read()
        for match in re.finditer(r"(?m)^W4MOE_API .*?(w4moe_\w+)\(", text):
            if match[1].endswith("_destroy"):
                continue  # the rules at the top say all
            before = text[: match.start()].rstrip()
            self.assertTrue(before.endswith("*/") and not before.endswith("- */"), match[1])


if __name__ == "__main__":
    LIBRARY, WORK, COMPILER = sys.argv[1:4]
    unittest.main(argv=sys.argv[:1])
