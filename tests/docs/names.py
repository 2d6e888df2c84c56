#!/usr/bin/env python3
"""Holds docs/names.md to the library: every name of Cohort in it is one.

usage: names.py PAGE --source FILE     writes a C++ source that names each of them; the build compiles it
       names.py PAGE --check COHORT    checks the form of the tables, and their flags against COHORT describe
       names.py PAGE --tensorflow LIST checks that the tables have the names of TensorFlow in LIST, and no others

A row is | TensorFlow | Cohort | note |. The second cell begins with a name in backquotes or with "no: " and a reason, and
whatever stands in backquotes in it is a name: `--flag`, or one of namespace cohort. The source says with #line in which row.
A name of TensorFlow is that of the table, a dot and what the first cell has in backquotes. scripts/tensorflow-names writes LIST.
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
OWNER = re.compile(r".*[.(]")  # of a member or an argument, with the dot or bracket
NAME = re.compile(r"[A-Za-z]\w*(::[A-Za-z]\w*)*")

# Names that readers look for, though TensorFlow does not export them: what instances alone have, and names of earlier
# versions and of other libraries for Keras.
OTHERS = {"tf.distribute.DistributedDataset.cardinality", "tf.data.experimental.CheckpointInputPipelineHook",
          "tf.keras.callbacks.Callback.params", "tf.keras.callbacks.experimental.BackupAndRestore",
          "tf.keras.losses.Loss.reduction", "tf.keras.metrics.Metric.reset_states", "tf.keras.optimizers.Optimizer.minimize",
          "tf.keras.layers.CLAHE", "tf.keras.layers.RandomApply", "tf.keras.layers.RandomChoice",
          "tf.keras.layers.RandomResizedCrop"}

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


def read_list(path):
    """Returns the names in a list of TensorFlow's."""
    return [line for line in path.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]


def check_tensorflow(page, found, listed):
    """Returns the names in the list that their tables lack, and those that TensorFlow does not have."""
    listed = list(listed)
    owners = {OWNER.match(name).group() for name in listed}
    known, there, problems = set(listed) | OTHERS, set(), []
    for row in found:
        for name in QUOTED.findall(row.cells[0]):
            full = f"{row.table}.{name}"
            there.add(full)
            # Members and arguments are known by their owner where the list has none of it.
            owner = OWNER.match(full).group()
            if (f"{row.table}." in owners and full not in known and "__" not in name
                    and (owner[:-1] not in known or owner in owners)):
                problems.append(f"{page}:{row.line}: TensorFlow has no {full}")
    return [f"{page}: {name} is missing" for name in listed if name not in there] + problems


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
    parser.add_argument("--tensorflow", type=pathlib.Path)
    arguments = parser.parse_args()
    found, problems = rows(arguments.page)
    problems += check_rows(arguments.page, found)
    if problems:
        sys.exit("\n".join(problems))
    if arguments.tensorflow:
        listed = read_list(arguments.tensorflow)
        problems = check_tensorflow(arguments.page, found, listed)
        if problems or not listed:
            sys.exit("\n".join(problems) or f"{arguments.tensorflow}: no names")
        print(f"{arguments.page.name}: all {len(listed)} names of {arguments.tensorflow.name}")
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
