#!/usr/bin/env python3
"""Checks that files stay under 400 lines and functions under 60: a larger one is a sign that two things live together.

Functions are found by braces: a line that ends in "{" at the indentation of a definition (0, 2 or 4 spaces) and has a
parameter list, until the line that closes it at the same indentation. clang-format makes that reliable.

usage: check_sizes.py REPOSITORY
"""
import pathlib
import re
import sys

MAX_FILE = 400
MAX_FUNCTION = 60
FOLDERS = ["include", "src", "tools", "examples", "benchmarks", "tests"]
OPENING = re.compile(r"^( {0,4})\S.*\)[^;]*\{$")
NO_FUNCTION = re.compile(r"^\s*(if|for|while|switch|namespace|class|struct|enum|else|do|try|\}|return)\b|^\s*\}|=\s*\[|TEST|INSTANTIATE")


def functions(lines):
    """Yields (first line, length) of each function definition."""
    for start, line in enumerate(lines):
        match = OPENING.match(line)
        if not match or NO_FUNCTION.search(line):
            continue
        indentation = match.group(1)
        if line.lstrip().startswith(": "):  # the initialisers of a constructor, indented by 4
            indentation = indentation[4:]
        closing = indentation + "}"
        for end in range(start + 1, len(lines)):
            if lines[end].startswith(closing):
                if not lines[end].startswith(closing + ")"):  # else it is a call with a function among its arguments
                    yield start + 1, end - start + 1
                break


def main(root):
    problems = []
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix not in (".h", ".cpp", ".cu"):
                continue
            lines = path.read_text(encoding="utf-8").splitlines()
            if len(lines) > MAX_FILE:
                problems.append(f"{path}: {len(lines)} lines, at most {MAX_FILE} are wanted")
            for line, length in functions(lines):
                if length > MAX_FUNCTION:
                    problems.append(f"{path}:{line}: a function of {length} lines, at most {MAX_FUNCTION} are wanted")
    print("\n".join(problems) if problems else "sizes: in bounds")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
