"""The pages of the documentation as Doxygen gets them: its names for pages and headings, and links within the site."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))
from check_links import slug  # noqa: E402

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*(```|~~~)")


def page_label(path):
    """The name of a page in the site: docs/tutorial/README.md is tutorial, docs/data.md is data."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] == "docs":
        parts = parts[1:]
        if parts[-1] == "README":
            parts = parts[:-1] or ["contents"]
    return "_".join(part.lower() for part in parts)


def page_file(path):
    return "index.html" if path == ROOT / "README.md" else page_label(path) + ".html"


def site_link(page, target):
    """Where a link of a page leads to in the site. Files that are no pages are copied to files/ by scripts/make-docs."""
    if re.match(r"[a-z]+:", target):
        return target
    name, _, anchor = target.partition("#")
    path = (page.parent / name).resolve() if name else page
    if path.is_dir():
        path = path / "README.md"
    if path.suffix == ".md":
        return page_file(path) + (f"#{page_label(path)}-{anchor}" if anchor else "")
    return "files/" + str(path.relative_to(ROOT))


def linked_files(page):
    """The files of the repository, other than pages, that a page links to."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    links = (site_link(page, target) for _, _, target in LINK.findall(text))
    return [link[len("files/"):] for link in links if link.startswith("files/")]


def page_line(page, line):
    def link(match):
        image, text, target = match.groups()
        to = site_link(page, target)
        return f'<img src="{to}" alt="{text}"/>' if image else f"[{text}]({to})"

    code = []  # links may have code in their text, and code may look like a link

    def hide(match):
        code.append(match.group(0))
        return f"\0{len(code) - 1}\0"

    line = re.sub(r"`[^`]*`", hide, line)
    line = re.sub(r"([@\\]|(?<=\s)--(?=\w))", r"\\\1", line)
    line = LINK.sub(link, line)
    return re.sub(r"\0(\d+)\0", lambda match: code[int(match.group(1))], line)


def filter_page(page, text):
    label, lines, fenced, seen = page_label(page), [], False, False
    for line in text.split("\n"):
        heading = re.match(r"^(#+) +(.*)$", line)
        if FENCE.match(line):
            fenced = not fenced
            lines.append(line)
        elif fenced or line.startswith("    "):
            lines.append(line)
        elif re.match(r"^<!-- .* -->$", line):
            lines.append("")
        elif heading:
            anchor = f"{label}-{slug(heading.group(2))}" if seen else label
            seen = True
            own = " {#mainpage}" if page == ROOT / "README.md" and anchor == label else f" {{#{anchor}}}"
            lines.append(f"{heading.group(1)} {page_line(page, heading.group(2))}{own}")
        else:
            lines.append(page_line(page, line))
    return "\n".join(lines)
