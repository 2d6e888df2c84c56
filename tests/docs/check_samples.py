#!/usr/bin/env python3
"""Every C++ sample of the documentation is part of a program that the tests compile and run.

A sample is preceded by <!-- sample: FILE --> and stands in that file line by line.
"""
import pathlib
import re
import sys

BLOCK = re.compile(r"(?:<!-- sample: (\S+) -->\n)?```cpp\n(.*?)```", re.S)


def main(root):
    problems = []
    pages = [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").rglob("*.md"))]
    for page in pages:
        text = page.read_text(encoding="utf-8")
        for source, sample in BLOCK.findall(text):
            if not source:
                problems.append(f"{page}: a sample without <!-- sample: FILE --> before it:\n{sample}")
            elif sample not in (root / source).read_text(encoding="utf-8"):
                problems.append(f"{page}: this sample is not in {source}:\n{sample}")
    print("\n".join(problems) if problems else f"docs: {len(pages)} pages, samples in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
