#!/usr/bin/env python3
"""Makes the changes that docs/extending.md shows for new wings to copies of the files that they touch.

usage: extending.py PAGE OUT [FILE...]   writes the changed files under OUT; FILEs are those that the build expects among them

A block of code is preceded by <!-- add: FILE --> where it is a whole new file, or by <!-- add: FILE, before: TEXT -->, where TEXT begins
exactly one line of FILE, spaces aside: the block is put before that line. The section says in its heading how many files there are.
"""
import pathlib
import re
import sys

SECTION = re.compile(r"^## (A [\w ]+) in (\w+) files\n(.*?)(?=^## |\Z)", re.S | re.M)
BLOCK = re.compile(r"^<!-- add: (\S+?)(?:, before: (.+?))? -->\n```[\w+]*\n(.*?)^```$", re.S | re.M)
NUMBERS = {"one": 1, "two": 2, "three": 3, "four": 4, "five": 5}


class Problem(Exception):
    """Something in the page that does not fit the files."""


def added(text, before, block, file):
    """Returns the text with the block before the line that begins with "before"."""
    lines = text.splitlines(keepends=True)
    places = [number for number, line in enumerate(lines) if line.lstrip().startswith(before)]
    if len(places) != 1:
        raise Problem(f"{file}: {len(places)} lines begin with {before!r}, wanted one")
    return "".join(lines[:places[0]]) + block + "".join(lines[places[0]:])


def changes(page, root):
    """Returns the changed files by their names."""
    sections = SECTION.findall(page)
    if not sections:
        raise Problem("there is no section \"A wing in ... files\"")
    files = {}
    for title, number, section in sections:
        blocks = BLOCK.findall(section)
        for file, before, block in blocks:
            source = root / file
            if before:
                text = files.get(file) or source.read_text(encoding="utf-8")
                files[file] = added(text, before, block, file)
            elif source.exists() or file in files:
                raise Problem(f"{file} is to be new, but it is there")
            else:
                files[file] = block
        if section.count("```") != 2 * len(blocks):
            raise Problem("a block of code does not say where it belongs: <!-- add: FILE, before: TEXT -->")
        touched = list(dict.fromkeys(file for file, _, _ in blocks))
        if NUMBERS.get(number) != len(touched):
            raise Problem(f"{title}: the heading says {number} files, the blocks are for {len(touched)}: {', '.join(touched)}")
    return files


def main(page, out, *expected):
    try:
        root = pathlib.Path(page).resolve().parents[1]
        files = changes(pathlib.Path(page).read_text(encoding="utf-8"), root)
        missing = set(expected) - set(files)
        if missing:
            raise Problem(f"nothing is added to {', '.join(sorted(missing))}")
    except Problem as problem:
        print(f"{page}: {problem}")
        return 1
    for file, text in files.items():
        target = pathlib.Path(out, file)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
