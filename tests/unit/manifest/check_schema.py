#!/usr/bin/env python3
"""The published schema says what the parser says: both read corpus.json, and the schema accepts every example manifest."""
import json
import os
import pathlib
import sys

DISTRIBUTION_PYTHON = "/usr/bin/python3"  # the one that Debian's package is for; another may be first on PATH

try:
    import jsonschema
except ImportError:
    if os.path.realpath(sys.executable) != os.path.realpath(DISTRIBUTION_PYTHON) and os.path.exists(DISTRIBUTION_PYTHON):
        os.execv(DISTRIBUTION_PYTHON, [DISTRIBUTION_PYTHON, *sys.argv])
    print("skipped: no jsonschema (Debian: python3-jsonschema)", file=sys.stderr)
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]


def main():
    schema = json.loads((ROOT / "generator/manifest/schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    failures = 0
    cases = json.loads((HERE / "corpus.json").read_text())
    for case in cases:
        errors = list(validator.iter_errors(case["manifest"]))
        if (not errors) != case["schema"]:
            failures += 1
            print(f"{case['name']}: schema says {errors[0].message if errors else 'accepted'}", file=sys.stderr)
    documents = {path.name: json.loads(path.read_text()) for path in (ROOT / "docs/examples").glob("*.json")}
    examples = {name: document for name, document in documents.items() if "problems" in document}
    for name, document in sorted(examples.items()):
        for error in validator.iter_errors(document):
            failures += 1
            print(f"{name}: {error.json_path}: {error.message}", file=sys.stderr)
    print(f"{len(cases)} cases, {len(examples)} examples, {failures} failures")
    return 1 if failures or len(cases) < 50 or len(examples) < 2 else 0


sys.exit(main())
