#!/usr/bin/env python3
"""Holds docs/names.md to the library: every name of Cohort in it is one.

usage: names.py PAGE --source FILE     writes a C++ source that names each of them; the build compiles it
       names.py PAGE --check COHORT    checks the form of the tables, and their flags against COHORT describe

A row is | TensorFlow | Cohort | note |. The second cell begins with a name in backquotes or with "no: " and a reason, and
whatever stands in backquotes in it is a name: `--flag`, or one of namespace cohort. The source says with #line in which row.
"""
import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys

HEADER = ["TensorFlow", "Cohort", "note"]
QUOTED = re.compile(r"`([^`]+)`")
NAME = re.compile(r"[A-Za-z]\w*(::[A-Za-z]\w*)*")

Row = collections.namedtuple("Row", "line table cells")


def rows(page):
    """Returns the rows of all tables, and what is wrong with the form of the page."""
    found, problems, table, columns = [], [], None, None
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("## "):
            table, columns = line[3:], None
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if columns is None:
            columns = cells
            if columns != HEADER:
                problems.append(f"{page}:{number}: the columns are {columns}, not {HEADER}")
        elif set(line) - set("|-"):
            found.append(Row(number, table, cells))
    return found, problems


def names(row):
    """Returns the names of Cohort in a row, flags among them."""
    return QUOTED.findall(row.cells[1])


def use(name, number):
    """Returns a declaration that compiles if the name is there: a constant, a member of a class, or else a name of a namespace."""
    path = name.split("::")
    if re.match(r"k[A-Z]", path[-1]):
        return f"[[maybe_unused]] constexpr auto constant_{number} = ::cohort::{name};"
    if len(path) > 1 and path[-2][0].isupper():
        owner = "::cohort::" + "::".join(path[:-1])
        return f"struct Member{number} : {owner} {{ using {owner}::{path[-1]}; }};"
    return f"namespace names_{number} {{ using ::cohort::{name}; }}"


def source(page, found):
    """Returns the C++ source."""
    lines = ['#include "cohort/cohort.h"', "", "namespace cohort_docs_names {", ""]
    number = 0
    for row in found:
        for name in names(row):
            if not name.startswith("--"):
                number += 1
                lines += [f'#line {row.line} "{page}"', use(name, number)]
    return "\n".join([*lines, "", "}  // namespace cohort_docs_names", ""])


def check_rows(page, found):
    """Returns what is wrong with the rows, apart from names that are not there."""
    problems, seen = [], set()
    for row in found:
        where = f"{page}:{row.line}: "
        if len(row.cells) != 3:
            problems.append(where + f"{len(row.cells)} cells, not 3")
            continue
        theirs = QUOTED.findall(row.cells[0])
        if not theirs:
            problems.append(where + "no name of TensorFlow in backquotes")
        problems += [where + f"{name} stands twice in {row.table}" for name in theirs if (row.table, name) in seen]
        seen |= {(row.table, name) for name in theirs}
        if not re.match(r"`|no: \w", row.cells[1]):
            problems.append(where + f'"{row.cells[1]}" is neither a name nor "no: " and a reason')
        problems += [where + f"{name} is no name" for name in names(row)
                     if not NAME.fullmatch(name) and not name.startswith("--")]
    return problems


def check_flags(page, found, cohort):
    """Returns the flags that `cohort train` does not have."""
    described = json.loads(subprocess.run([cohort, "describe"], check=True, capture_output=True, text=True).stdout)
    options = {name for flag in described["commands"]["train"] for name in flag["names"]}
    return [f"{page}:{row.line}: cohort train has no {name}" for row in found for name in names(row)
            if name.startswith("--") and name not in options]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=pathlib.Path)
    parser.add_argument("--source", type=pathlib.Path)
    parser.add_argument("--check")
    arguments = parser.parse_args()
    found, problems = rows(arguments.page)
    problems += check_rows(arguments.page, found)
    if problems:
        sys.exit("\n".join(problems))
    if arguments.source:
        arguments.source.write_text(source(arguments.page, found), encoding="utf-8")
    if arguments.check:
        problems = check_flags(arguments.page, found, arguments.check)
        if problems:
            sys.exit("\n".join(problems))
        counts = collections.Counter()
        for row in found:
            counts[row.cells[1].startswith("no: ")] += len(QUOTED.findall(row.cells[0]))
        if not counts[False] or not counts[True]:
            sys.exit(f"{arguments.page}: the tables were not found")
        print(f"{arguments.page.name}: {counts[False]} names have one here, {counts[True]} have not")


if __name__ == "__main__":
    main()
