"""What the settings of a configuration mean: their structs say so once, in describe(), for the command line's help."""
import functools
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]
LITERAL = r'"(?:[^"\\]|\\.)*"'
DESCRIBED = re.compile(r'\b(?:\w+\.)?add\(\s*"[^"]+",\s*([\w.]+),\s*(' + LITERAL + r"(?:\s*" + LITERAL + r")*)(?:\s*\+\s*(\w+))?")


@functools.cache
def meanings(owner):
    """The meanings of a struct's settings, by the paths that its describe() has for them."""
    found = {}
    for source in (ROOT / "src").rglob("*.cpp"):
        text = source.read_text(encoding="utf-8")
        begin = text.find(f"{owner}::describe(ConfigFields")
        if begin < 0:
            continue
        for part in (text[begin:], text):  # its own first, then helpers of the same file
            for path, literals, appended in DESCRIBED.findall(part):
                words = "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', literals))
                more = re.search(rf'std::string {appended} = "([^"]*)"', text) if appended else None
                # What a function appends, such as the names in a table, only the program knows.
                found.setdefault(path, (words + (more.group(1) if more else "")).rstrip(": "))
    return found


def meaning(known, path):
    """The meaning of the setting with this path within its struct: the path may begin with a variable in describe()."""
    wanted = ".".join(path)
    candidates = (lambda key: key == wanted, lambda key: key.endswith("." + wanted), lambda key: key.split(".")[-1] == path[-1])
    return next((known[key] for fits in candidates for key in known if fits(key)), None)


def owner(lines, i):
    """The structs around line i, by their indentation: the name of the innermost one that describes itself, and the path of
    the groups within it, which are members of unnamed structs or of structs without a describe()."""
    indent, path = len(lines[i]) - len(lines[i].lstrip()), []
    for j in range(i - 1, -1, -1):
        opened = re.match(r"^( *)(?:struct|class)(?: (\w+))?[^;]*\{", lines[j])
        if not opened or len(opened.group(1)) >= indent:
            continue
        indent = len(opened.group(1))
        closed = next(re.match(r"^ *\} (\w+)(?:, \w+)*;", line) for line in lines[j:] if re.match(rf"^ {{{indent}}}\}}", line))
        if opened.group(2) and (not closed or meanings(opened.group(2))):
            return opened.group(2), path
        path.insert(0, closed.group(1))
    return None, path


def fields(line):
    """The type of a line's settings and their declarations, [("momentum", "momentum = 0.9"), ...]; nothing for other lines."""
    found = re.match(r"^ *(Setting<.*?>+) (.*);$", line)
    if not found:
        return None, []
    declared = re.split(r", (?=\w+(?: =|,|$))", re.sub(r"\{[^}]*\}", lambda braces: braces.group(0).replace(", ", ",\0"), found.group(2)))
    return found.group(1), [(re.match(r"\w+", one).group(0), one.replace("\0", " ")) for one in declared]
