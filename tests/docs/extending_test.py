"""The changes of docs/extending.md are found, and what does not fit is said."""
import pathlib
import tempfile
import unittest

import extending

PAGE = """# Extending

## A wing in two files

<!-- add: src/new.cpp -->
```c++
int made();
```

<!-- add: CMakeLists.txt, before: b.cpp -->
```cmake
  new.cpp
```

## Another section
"""


class Changes(unittest.TestCase):
    def changed(self, page):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "CMakeLists.txt").write_text("layer(\n  a.cpp\n  b.cpp\n)\n", encoding="utf-8")
            (root / "there.cpp").write_text("", encoding="utf-8")
            return extending.changes(page, root)

    def refused(self, message, old, new):
        self.assertIn(old, PAGE)
        with self.assertRaisesRegex(extending.Problem, message):
            self.changed(PAGE.replace(old, new))

    def test_are_made(self):
        self.assertEqual(self.changed(PAGE), {"src/new.cpp": "int made();\n", "CMakeLists.txt": "layer(\n  a.cpp\n  new.cpp\n  b.cpp\n)\n"})

    def test_several_of_one_file(self):
        more = PAGE.replace("## Another", "<!-- add: CMakeLists.txt, before: ) -->\n```cmake\n  last.cpp\n```\n\n## Another")
        self.assertEqual(self.changed(more)["CMakeLists.txt"], "layer(\n  a.cpp\n  new.cpp\n  b.cpp\n  last.cpp\n)\n")

    def test_what_does_not_fit(self):
        self.refused("the heading says three files, the blocks are for 2: src/new.cpp, CMakeLists.txt", "two", "three")
        self.refused("CMakeLists.txt: 0 lines begin with 'c.cpp'", "before: b.cpp", "before: c.cpp")
        self.refused("there.cpp is to be new", "src/new.cpp", "there.cpp")
        self.refused("does not say where it belongs", "<!-- add: src/new.cpp -->\n", "")
        self.refused("no section", "## A wing in", "## Wings in")


if __name__ == "__main__":
    unittest.main()
