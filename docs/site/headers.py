"""Public headers as Doxygen gets them.

A header's opening comment becomes the file's, comments above a declaration and behind a field theirs, and what it declares
joins the header's topic (topics.txt). An overload without a comment that follows another one directly shares that one's;
a struct of options without one says whose they are; settings say what their describe() says of them (settings.py). Private
parts and namespaces "detail" are left out. Lines keep their numbers.
"""
import pathlib
import re

import settings

SITE = pathlib.Path(__file__).resolve().parent
TOPIC_OF_FOLDER = {"parallel": "strategies"}  # of headers that topics.txt does not name


def topics():
    """The topic of every header, and the topics with their titles and sentences."""
    of_header, described, topic = {}, [], None
    for line in (SITE / "topics.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith(" "):
            for name in line.split():
                if name in of_header:
                    raise SystemExit(f"topics.txt: {name} stands twice")
                of_header[name] = topic
        else:
            topic, rest = line.split(":", 1)
            title, sentence = rest.split("|", 1)
            described.append((topic, title.strip(), sentence.strip()))
    return of_header, described


def escaped(text):
    """Text as Doxygen has to get it to show it as it is; code between backticks stays."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([\\@<>#&%]|--)", r"\\\1", piece) for piece in pieces)


def comment_lines(texts):
    """The lines of one comment, without their slashes, for Doxygen: indented lines between empty ones are code."""
    out, i = [], 0
    while i < len(texts):
        block = i
        while block < len(texts) and re.match(r"^ {3,}\S", texts[block]):
            block += 1
        if block > i and (i == 0 or not texts[i - 1].strip()):
            code = "code{.cpp}" if any(re.search(r"[;{]", line) for line in texts[i:block]) else "verbatim"
            if out:
                out[-1] = " @" + code
            else:
                texts[i] = f"@{code} {texts[i]}"
            out += texts[i:block]
            end = " @end" + code.split("{")[0]
            if block < len(texts):
                out.append(end)
            else:
                out[-1] += end
            i = block + 1
        else:
            out.append(escaped(texts[i]))
            i += 1
    return out


def split(line):
    """A line's code, and the comment behind it or None."""
    match = re.match(r'^((?:[^"/]|"(?:[^"\\]|\\.)*"|/(?!/))*)//(.*)$', line)
    return (match.group(1), match.group(2)) if match else (line, None)


def of_the_code(code, trailing):
    """Whether the comment behind a line is for those who read the code, not about what the line declares."""
    return re.match(r" (NOLINT|IWYU|clang-format)", trailing) or code.lstrip().startswith("template")


class Header:
    """Reads a header line by line and knows whether a line stands in a scope (where declarations do) or in a body."""

    def __init__(self, name, text):
        self.name, self.lines, self.out = name, text.split("\n"), []
        self.known = {}  # the meanings of settings, by struct
        self.scopes, self.statement = [], ""  # kinds of the open braces; the text since the last ; { or }
        self.parens = 0

    def in_scope(self):
        return all(kind == "scope" for kind in self.scopes) and self.parens == 0

    def feed(self, code):
        """Follows the braces of a line without comments."""
        if re.match(r"^\s*(public|private|protected):", code):
            return
        for char in re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', '""', code):
            if char == "(":
                self.parens += 1
            elif char == ")":
                self.parens -= 1
            if char == "{":
                head = re.sub(r"template\s*<.*?>\s", "", self.statement)
                scope = re.search(r"\b(class|struct|enum|namespace)\b", head) and "(" not in head and "=" not in head
                self.scopes.append("scope" if scope else "body")
                self.statement = "" if scope else self.statement
            elif char == "}":
                kind = self.scopes.pop() if self.scopes else "scope"
                self.statement = self.statement if kind == "body" and "=" in self.statement else ""
            elif char == ";" and self.in_scope():
                self.statement = ""
            elif self.in_scope():
                self.statement += char
        if self.in_scope() and self.statement.strip():
            self.statement += " "

    def declared_name(self, i):
        """The function that the declaration which begins in line i declares, or nothing."""
        text = ""
        for line in self.lines[i:i + 6]:
            text += split(line)[0] + " "
            if ";" in text or "{" in text:
                break
        text = re.sub(r"^\s*template\s*<.*?>\s(?=\s*\w)", "", text)
        if re.match(r"\s*(class|struct|enum|using)\b", text):
            return None
        match = re.search(r"(operator\S+?|~?\w+)\s*\(", text)
        return match.group(1) if match else None

    def options_of(self, name):
        """A sentence for a struct of options without a comment: the header tells who takes it."""
        takers = re.findall(r"(\w+)\((?:[^();{]|\([^()]*\))*?\b" + name + r"&? options", "\n".join(self.lines))
        takers = list(dict.fromkeys(taker for taker in takers if taker != "for"))
        return "The options of " + " and ".join(takers) + "." if takers else "Options."

    def settings(self, i, group):
        """Line i with a comment for each of its settings, or nothing: `group` is for those that describe() leaves out."""
        kind, declared = settings.fields(self.lines[i])
        if not declared:
            return None
        name, path = settings.owner(self.lines, i)
        known = self.known.setdefault(name, settings.meanings(name))
        texts = [settings.meaning(known, [*path, field]) for field, _ in declared]
        comments = [escaped(text[0].upper() + text[1:]) + "." if text else " ".join(group or []) for text in texts]
        # A declaration each, because a comment would count for the first one only.
        return " ".join((f"/** {comment} */ " if comment else "") + f"{kind} {one};" for comment, (_, one) in zip(comments, declared))

    def run(self, topic):
        """The header for Doxygen; its declarations join the topic."""
        # `last` is the name and the comment of the declaration that ended in the line before, its name None right after the
        # comment. `group` is the last comment since an empty line.
        i, last, group = 0, None, None
        while i < len(self.lines):
            line = self.lines[i]
            comment = re.match(r"^(\s*)//", line)
            if comment:
                i, last = self.comment(i, comment.group(1))
                group = last[1] if last else group
                continue
            code, trailing = split(line)
            begins = self.in_scope() and not self.statement.strip() and code.strip()
            whole, shared = None, ""
            if begins and last and last[0] is None:  # the comment above is this declaration's
                name = self.declared_name(i)
                last = (name, last[1]) if name else None
            elif begins and (not trailing or of_the_code(code, trailing)):
                options = re.match(r"^struct (\w+Options) \{", code)
                if options:
                    shared = f"/** {self.options_of(options.group(1))} */ "
                elif last and last[0] and last[0] == self.declared_name(i):
                    shared = "/** " + " ".join(last[1]) + " */ "
                else:
                    last, whole = None, self.settings(i, group)
            elif begins or not code.strip():
                last = None
            group = group if code.strip() else None
            self.out.append(whole or shared + self.code_line(code, trailing, topic))
            self.feed(code)
            i += 1
        return "\n".join(self.out)

    def code_line(self, code, trailing, topic):
        opened = re.match(r"^(?:inline )?namespace [\w:]+ \{$", code.rstrip())
        if opened and "detail" not in code:
            return f"{code.rstrip()} /** @addtogroup {topic} */ /** @{{ */"
        if code.rstrip() == "}" and trailing and trailing.startswith(" namespace"):
            return "}" if "detail" in trailing else "/** @} */ }"
        if trailing is None or not self.in_scope():
            return code
        return code + ("//" + trailing if of_the_code(code, trailing) else "///<" + escaped(trailing))

    def comment(self, i, indent):
        end = i
        while end < len(self.lines) and re.match(r"^\s*//", self.lines[end]):
            end += 1
        texts = [re.sub(r"^\s*//", "", line) for line in self.lines[i:end]]
        following = self.lines[end] if end < len(self.lines) else ""
        previous = self.lines[i - 1] if i else ""
        if i == 0:
            texts = comment_lines(texts)
            self.out.append(f"/// @file {self.name}{texts[0]}")
            self.out += ["///" + text for text in texts[1:]]
        elif "//" in previous and previous.index("//") == len(indent) and previous.split("//")[0].strip():
            self.out += [f"{indent}///<{escaped(text)}" for text in texts]  # goes on with a comment behind a field
        elif not self.in_scope() or not following.strip() or following.strip().startswith("}"):
            self.out += self.lines[i:end]
        else:
            texts = comment_lines(texts)
            self.out += [f"{indent}///{text}" for text in texts]
            return end, (None, texts)
        return end, None


def without_detail(text):
    """A header without what its namespaces "detail" hold, which is nobody's to use; their lines stay, empty."""
    return re.sub(r"^namespace (cohort::)?detail \{$.*?^\}  // namespace (cohort::)?detail$", lambda match: "\n" * match.group(0).count("\n"),
                  text, flags=re.S | re.M)


def without_private(text):
    """A header without the private parts of its classes; their lines stay, empty."""
    return re.sub(r"^( *) private:$.*?^(?=\1\};)", lambda match: "\n" * match.group(0).count("\n"), text, flags=re.S | re.M)


def filter_header(name, text):
    """The header, whose name is as programs include it, for Doxygen."""
    topic = topics()[0].get(pathlib.Path(name).stem, TOPIC_OF_FOLDER.get(pathlib.Path(name).parent.name, "support"))
    return Header(name, without_private(without_detail(text))).run(topic)
