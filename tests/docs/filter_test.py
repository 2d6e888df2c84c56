"""What docs/site hands to Doxygen."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "site"))
sys.dont_write_bytecode = True
import headers  # noqa: E402
import pages as site  # noqa: E402

HEADER = """// Things: what there is.
#pragma once

namespace cohort {

namespace detail {
int hidden();
}  // namespace detail

struct ThingOptions {
  int size = 1;  // in pixels
};

// A thing.
class Thing {
 public:
  explicit Thing(const ThingOptions& options = {});
  // Grows by <n>.
  void grow(int n);
  void grow(double n);

  int get() const { return 1; }  // the size
 private:
  int size_;  // nobody's business
};

}  // namespace cohort
"""


class Headers(unittest.TestCase):
    def setUp(self):
        self.lines = headers.filter_header("cohort/thing.h", HEADER).split("\n")

    def line_with(self, text):
        return next(line for line in self.lines if text in line)

    def line_before(self, text):
        return self.lines[self.lines.index(self.line_with(text)) - 1]

    def test_lines_keep_their_numbers(self):
        self.assertEqual(len(self.lines), len(HEADER.split("\n")))

    def test_comments_become_doxygens(self):
        self.assertEqual(self.lines[0], "/// @file cohort/thing.h Things: what there is.")
        self.assertEqual(self.line_before("class Thing"), "/// A thing.")
        self.assertIn("///< in pixels", self.line_with("int size = 1"))
        self.assertIn("///< the size", self.line_with("int get()"))

    def test_marks_are_escaped(self):
        self.assertEqual(self.line_before("void grow(int n)"), "  /// Grows by \\<n\\>.")

    def test_an_overload_shares_the_comment_before(self):
        self.assertIn("Grows by", self.line_with("void grow(double n)"))

    def test_options_say_whose_they_are(self):
        self.assertIn("The options of Thing.", self.line_with("struct ThingOptions"))

    def test_what_is_not_public_is_gone(self):
        self.assertNotIn("hidden", "".join(self.lines))
        self.assertNotIn("size_", "".join(self.lines))


class Pages(unittest.TestCase):
    def test_links_lead_to_pages_of_the_site(self):
        page = ROOT / "docs" / "training.md"
        self.assertEqual(site.site_link(page, "concepts.md#what-is-promised"), "concepts.html#concepts-what-is-promised")
        self.assertEqual(site.site_link(page, "tutorial/README.md"), "tutorial.html")
        self.assertEqual(site.site_link(page, "../README.md"), "index.html")
        self.assertEqual(site.site_link(page, "../examples/backup.cpp"), "files/examples/backup.cpp")

    def test_code_stays_as_it_is(self):
        text = "# T\n\n`[a](b.md)` and @x\n\n```cpp\n@y [c](d.md)\n```\n"
        self.assertEqual(site.filter_page(ROOT / "docs" / "training.md", text),
                         "# T {#training}\n\n`[a](b.md)` and \\@x\n\n```cpp\n@y [c](d.md)\n```\n")


if __name__ == "__main__":
    unittest.main()
