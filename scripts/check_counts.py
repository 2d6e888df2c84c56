#!/usr/bin/env python3
"""Counts lines, headers and types that make the core hard to understand. Fails if a count exceeds its ceiling in CEILINGS.
Ceilings only go down: a change that lowers a count lowers its ceiling.

usage: check_counts.py REPOSITORY
"""
import collections
import pathlib
import re
import sys

from wings import UMBRELLAS, sources, wings_of

CEILINGS = {
    "lines of the core": 63717,
    "headers of the core": 24,
    "lines of them": 2993,
    "errors that say Unimplemented": 51,
    "abstract classes with one implementation": 0,
    "type names that stand in several files": 4,
    "lines of prose over 120 characters": 1705,
}
CLASS = re.compile(r"^[ ]*(?:class|struct)\s+(?:\[\[nodiscard\]\]\s+)?(?:\w+::)*(\w+)(?:\s+final)?\s*(?::(?!:)([^;{]*))?\{", re.M)
TYPE = re.compile(r"^(?:class|struct|enum class|enum)\s+(?:\[\[nodiscard\]\]\s+)?(\w+)(?:\s+final)?(?:\s*:(?!:)[^;{]*)?\s*\{", re.M)
MOST_OF_A_LINE = 120


def lonely_classes(own, tests):
    """Returns the number of classes with pure virtual methods that one class or none derives from, the tests' included."""
    abstract, derived = set(), collections.defaultdict(set)
    for text in [*own.values(), *tests.values()]:
        for match in CLASS.finditer(text):
            for base in re.findall(r"(\w+)(?:<[^<>]*>)?\s*(?:,|$)", (match.group(2) or "").strip()):
                derived[base].add(match.group(1))
    for text in own.values():
        for match in CLASS.finditer(text):
            indent = len(match.group(0).lstrip("\n")) - len(match.group(0).lstrip())
            end = text.find("\n" + " " * indent + "}", match.end())
            if re.search(r"\bvirtual\b[^;]*= 0;", text[match.end():end]):
                abstract.add(match.group(1))
    return sum(len(derived[name]) <= 1 for name in abstract)


def repeated_types(own):
    places = collections.defaultdict(set)
    for path, text in own.items():
        for name in TYPE.findall(text):
            places[name].add(path)
    return sum(len(files) > 1 for files in places.values())


def long_prose(root):
    """Returns the number of lines of Markdown over MOST_OF_A_LINE characters. Skips tables, code and lines with one long address."""
    count = 0
    for path in [*sorted((root / "docs").rglob("*.md")), *sorted(root.glob("*.md"))]:
        code = False
        for line in path.read_text(encoding="utf-8").splitlines():
            code ^= line.startswith("```")
            table = line.startswith(("|", "    ", "<!--"))
            longest = max(map(len, line.split()), default=0)
            count += not code and not table and len(line) > MOST_OF_A_LINE and longest < MOST_OF_A_LINE / 2
    return count


def counts(root):
    own, tests = sources(root, "src", "include", "tools"), sources(root, "tests")
    wing_of = wings_of(root)
    headers = [text for path, text in sources(root, "include").items()
               if len(path.parts) == 3 and path.stem not in UMBRELLAS and wing_of(path) is None]
    lines = lambda texts: sum(len(text.splitlines()) for text in texts)
    return dict(zip(CEILINGS, (
        lines(text for path, text in own.items() if wing_of(path) is None), len(headers), lines(headers),
        sum(len(re.findall(r"(?:fail|throw_error|throw)\s*<?\s*(?:Unimplemented|OperationRefused)\b", text)) for text in own.values()),
        lonely_classes(own, tests), repeated_types(own), long_prose(root)), strict=True))


def main(root):
    counted = counts(root)
    problems = [f"{name}: {number}, at most {CEILINGS[name]} are wanted" for name, number in counted.items() if number > CEILINGS[name]]
    print("\n".join(problems) if problems else "counts: " + "; ".join(f"{name} {number}" for name, number in counted.items()))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
