#!/usr/bin/env python3
"""Prepares one file for Doxygen (FILTER_PATTERNS in Doxyfile): a page (pages.py) or a public header (headers.py)."""
import pathlib
import sys

sys.dont_write_bytecode = True
import headers  # noqa: E402
import pages  # noqa: E402

path = pathlib.Path(sys.argv[1]).resolve()
content = path.read_text(encoding="utf-8")
if path.suffix == ".md":
    sys.stdout.write(pages.filter_page(path, content))
else:
    sys.stdout.write(headers.filter_header(str(path.relative_to(pages.ROOT / "include")), content))
