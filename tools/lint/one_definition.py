#!/usr/bin/env python3
"""Strides, pitches, paddings and byte offsets are computed in templates/contract/ and nowhere else.

Three things are faults in generator/, runtime/, tools/ and the rest of templates/:
  1. a rounding helper of one's own (ceil_div, align_up, round_up, ...), or the idiom for it written out:
     (a + b - 1) / b, (a + 15) / 16, a & ~(b - 1), (a + 15) & ~15;
  2. a product, quotient or shift assigned to a name that says stride, pitch, padded, offset_bytes or offset_elems;
  3. a function of such a name whose body multiplies, divides or shifts.
Asking the contract (`layout.row_stride_elems()`), passing a value on, and adding to a base are no faults. The cache knows
no dimensions and tests compute by other ways on purpose, so that neither is read; see also EXEMPT below.

A line that must do it anyway says why, at its end or on the line before: `// lint: one-definition: REASON`.
"""
import re
import sys

import source_text as st

FOLDERS = ("generator", "runtime", "tools", "templates")
# Files and folders that are not read, each with its reason.
EXEMPT = {
    "templates/contract/": "the one place",
    "runtime/lockstep/": "plays a machine: pages, banks, addresses",
    "tools/bench/": "counts repetitions; lays nothing out",
    "templates/device/token_stage.h": "bank swizzle of its own shared-memory slots; nobody else reads them",
}
WAIVER = re.compile(r"lint: one-definition: \S")

SIZE_NAME = r"\w*(?:[sS]tride|[pP]itch|[pP]added|offset_(?:bytes|elems))\w*"
HELPER = re.compile(
    r"(?:ceil_?div|div_?(?:ceil|up|round_?up)|cdiv|(?:round|align|pad)_?up(?:_to)?|(?:align|pad)_to|round_to_multiple"
    r"|next_multiple(?:_of)?)(?:_?[iu]?\d+)?$",
    re.IGNORECASE,
)
FUNCTION = re.compile(r"(?P<before>[\w>&*\]]\s+|[&*>]\s*)(?:\w+::)*(?P<name>\w+)\s*(?=\()")
NOT_A_TYPE = re.compile(r"\b(?:return|else|new|throw|case|co_return|co_yield|and|or|not)\s+$")
AFTER_PARAMETERS = re.compile(r"\s*(?:(?:const|noexcept|override|final)\b\s*|->\s*[\w:<>]+\s*)*\{")
ASSIGNMENT = re.compile(rf"\b(?P<name>{SIZE_NAME})\s*(?:\[[^\]]*\]\s*)?(?:(?P<op>[*/%]?=)(?!=)|\{{)\s*")
MULTIPLICATIVE = re.compile(r"[\w)\]]\s*(?:\*|/|%|<<|>>)\s*[\w(]")
COMPARISON = re.compile(r"[=!]=|&&|\|\||\?")

OPERAND = r"[\w.:]+(?:\(\))?"
IDIOMS = (
    (re.compile(rf"\+\s*(?P<by>{OPERAND})\s*-\s*1\s*\)\s*/\s*(?P=by)(?![\w(])"), "(a + b - 1) / b"),
    (re.compile(rf"-\s*1\s*\+\s*(?P<by>{OPERAND})\s*\)\s*/\s*(?P=by)(?![\w(])"), "(a - 1 + b) / b"),
    (re.compile(r"&\s*~\s*\(\s*[^()]+?\s*-\s*1\s*\)"), "a & ~(b - 1)"),
)
LITERAL_DIVIDE = re.compile(r"\+\s*(\d+)\s*\)\s*/\s*(\d+)\b")
LITERAL_MASK = re.compile(r"\+\s*(0[xX][0-9a-fA-F]+|\d+)\s*\)\s*&\s*~\s*(0[xX][0-9a-fA-F]+|\d+)\b")


def without_arguments(expression):
    """`expression` with every call's arguments and every index blanked: what they hold is not assigned."""
    for opening in re.finditer(r"[\w>]\s*\(|\[", expression):
        start = opening.end() - 1
        if expression[start] == " ":  # inside a stretch that is already blank
            continue
        end = st.closing(expression, start, "()" if expression[start] == "(" else "[]")
        if end > 0:
            expression = expression[: start + 1] + " " * (end - start - 1) + expression[end:]
    return expression


def right_hand_side(code, start):
    """The expression that begins at `start`: up to the ; , or closing bracket that ends it."""
    depth = 0
    for index in range(start, len(code)):
        char = code[index]
        if char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth < 0:
                return code[start:index]
        elif char == ";" or (char == "," and depth == 0):
            return code[start:index]
    return code[start:]


def rounding_idioms(code):
    for pattern, name in IDIOMS:
        for match in pattern.finditer(code):
            yield match.start(), f"rounds by hand, {name}"
    for match in LITERAL_DIVIDE.finditer(code):
        if int(match[1]) + 1 == int(match[2]) > 1:
            yield match.start(), f"rounds by hand, (a + {match[1]}) / {match[2]}"
    for match in LITERAL_MASK.finditer(code):
        if int(match[1], 0) == int(match[2], 0):
            yield match.start(), f"rounds by hand, (a + {match[1]}) & ~{match[2]}"


def functions(code):
    """(position, name, body) of every function that is defined in `code`."""
    for match in FUNCTION.finditer(code):
        if NOT_A_TYPE.search(code[: match.start("name")][-16:]):
            continue
        end = st.closing(code, match.end(), "()")
        opening = AFTER_PARAMETERS.match(code, end + 1) if end > 0 else None
        if opening:
            close = st.closing(code, opening.end() - 1, "{}")
            yield match.start("name"), match["name"], code[opening.end() : close if close > 0 else len(code)]


def size_assignments(code):
    for match in ASSIGNMENT.finditer(code):
        value = without_arguments(right_hand_side(code, match.end()))
        compound = match["op"] in ("*=", "/=", "%=")
        if compound or (MULTIPLICATIVE.search(value) and not COMPARISON.search(value)):
            yield match.start(), f"'{match['name']}' is computed here; ask templates/contract/ for it"


def check_text(path, text):
    code = st.blank(text)
    # Preprocessor lines are not code, but for what a macro defines.
    code = re.sub(r"(?m)^[ \t]*#[ \t]*(?:include|pragma|error|line)\b.*$", "", code)
    faults = list(rounding_idioms(code)) + list(size_assignments(code))
    for position, name, body in functions(code):
        if HELPER.match(name):
            faults.append((position, f"'{name}' is a rounding helper; templates/contract/prelude.h has the only ones"))
        elif re.fullmatch(SIZE_NAME, name) and MULTIPLICATIVE.search(without_arguments(body)):
            faults.append((position, f"'{name}()' computes a layout; that belongs into templates/contract/"))
    lines = text.split("\n")
    for position, message in sorted(faults):
        number = st.line_of(code, position)
        if not any(WAIVER.search(line) for line in lines[max(number - 2, 0) : number]):
            yield st.Finding(path, number, message)


def check(root):
    findings, checked = [], 0
    for path in st.files(root, FOLDERS):
        if not path.startswith(tuple(EXEMPT)):
            findings.extend(check_text(path, st.read(root, path)))
            checked += 1
    return findings, checked


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else st.default_root()
    sys.exit(st.report("one_definition", *check(root)))


if __name__ == "__main__":
    main()
