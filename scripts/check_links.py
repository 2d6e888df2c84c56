#!/usr/bin/env python3
"""Checks the links of the documentation: relative ones and anchors of the pages, the files that they name, how many files and lines a
page says that a table of files has, that no text names an issue of a tracker by its number, and the links of a built site when it is given.

usage: check_links.py REPOSITORY [SITE]

Addresses of other sites are checked for their form only: nothing is fetched.
"""
import html.parser
import pathlib
import re
import sys
import urllib.parse

LINK = re.compile(r"\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^)\s]+)\)")
# A file of the repository that a page names: `src/step/step.cpp`.
FILE = re.compile(r"`((?:benchmarks|cmake|docs|examples|include|scripts|src|tests|tools)/[\w./-]*\w\.\w+)`")
# "(14 files, less than 2,200 lines)" before a table whose rows begin with a file.
COUNTED = re.compile(r"\((\d+) files, less than ([\d,]+) lines\)[^|]*((?:\|.*\n)+)")
# An issue of a tracker that readers do not have. Another project's issue is written owner/name#123.
ISSUE = re.compile(r"\bissues? +#?\d+", re.I)
TEXTS = {".md", ".h", ".cpp", ".cu", ".py", ".sh", ".txt", ".cmake", ".in", ".yaml", ".proto", ".1", ""}
EXTERNAL = re.compile(r"^https?://[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+(:\d+)?(/[^\s<>\"]*)?$")


def prose(text):
    """A page without its code, lines kept apart."""
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def slug(heading):
    """GitHub's anchor of a heading."""
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")


def anchors(text):
    """The anchors of a page."""
    return {slug(heading) for heading in re.findall(r"^#+ +(.*)$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), flags=re.M)}


def check_page(page, root):
    text = page.read_text(encoding="utf-8")
    for link in LINK.findall(prose(text)):
        where = f"{page.relative_to(root)}: the link {link}"
        if re.match(r"[a-z]+:", link):
            if not EXTERNAL.match(link):
                yield f"{where} is no address"
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists():
            yield f"{where} leads nowhere"
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target.read_text(encoding="utf-8"))):
            yield f"{where} names a heading that is not there"
    for name in FILE.findall(text):
        if not (root / name).exists():
            yield f"{page.relative_to(root)}: there is no {name}"
    for files, most, table in COUNTED.findall(text):
        paths = [root / name for name in re.findall(r"^\| `([^`]+)`", table, re.M)]
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in paths if path.exists())
        if len(paths) != int(files) or lines >= int(most.replace(",", "")):
            yield f"{page.relative_to(root)}: the table has {len(paths)} files with {lines} lines, wanted {files} with less than {most}"


def pages(root):
    top = [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [page for page in top if page.exists()] + sorted((root / "docs").rglob("*.md"))


def numbered_issues(root):
    """Yields each line of the repository's texts that names an issue by its number."""
    folders = ("benchmarks", "cmake", "docs", "examples", "include", "scripts", "src", "tests", "tools", ".ci")
    files = [root / "Makefile", *pages(root), *(path for folder in folders for path in sorted((root / folder).rglob("*")))]
    for path in dict.fromkeys(files):
        if not path.is_file() or path.suffix not in TEXTS:
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            if ISSUE.search(line):
                yield f"{path.relative_to(root)}:{number}: names an issue by its number, which leads nowhere: {line.strip()[:80]}"


def problems(root):
    """What is wrong with the links of the repository's pages, and which texts name issues by number."""
    return [problem for page in pages(root) for problem in check_page(page, root)] + list(numbered_issues(root))


class Targets(html.parser.HTMLParser):
    """The links (href, src) and the anchors (id, name) of an HTML file."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append(value)
            elif value and (name == "id" or (name == "name" and tag == "a")):
                self.anchors.add(value)


def site_problems(folder):
    """What is wrong with the links of a built site."""
    files = {path.resolve(): Targets(path.read_text(encoding="utf-8")) for path in sorted(folder.rglob("*.html"))}
    found = []
    for path, page in files.items():
        for link in page.links:
            where = f"{path.relative_to(folder.resolve())}: the link {link}"
            if re.match(r"https?:", link):
                if not EXTERNAL.match(link):
                    found.append(f"{where} is no address")
                continue
            if re.match(r"(javascript|mailto|data):", link):
                continue
            name, _, anchor = urllib.parse.unquote(link).partition("#")
            target = (path.parent / name.split("?")[0]).resolve() if name else path
            if not target.exists():
                found.append(f"{where} leads nowhere")
            elif anchor and target in files and anchor not in files[target].anchors:
                found.append(f"{where} names an anchor that is not there")
    return found


def main(arguments):
    root = pathlib.Path(arguments[0]).resolve()
    found = problems(root) + (site_problems(pathlib.Path(arguments[1])) if len(arguments) > 1 else [])
    print("\n".join(found) if found else f"links: {len(pages(root))} pages in order")
    return 1 if found else 0


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
