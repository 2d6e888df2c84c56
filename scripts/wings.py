"""Which files are a wing's: those of src/wings and tools/cohort/wings, and those that wings.txt lists."""
import pathlib
import re

UMBRELLAS = {"cluster", "cohort", "data", "layers", "layouts", "losses", "metrics", "models", "parallel", "train", "zoo"}
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)


def sources(root, *folders):
    """Returns the texts of C++ files by their paths."""
    return {path.relative_to(root): path.read_text(encoding="utf-8") for folder in folders
            for path in sorted((root / folder).rglob("*")) if path.suffix in (".h", ".cpp", ".cu")}


def wings_of(root):
    """Returns the function that tells the wing of a path, or None for one of the core."""
    places = {}
    listed = root / "scripts" / "wings.txt"
    for line in listed.read_text(encoding="utf-8").splitlines() if listed.is_file() else []:
        if line and not line.startswith("#"):
            wing, place = line.split()
            places[place] = wing

    def wing_of(path):
        parts = path.parts
        for place in (("src", "wings"), ("tools", "cohort", "wings")):
            if parts[:len(place)] == place:
                return parts[len(place)]
        for folder in path.parents:
            if f"{folder}/" in places:
                return places[f"{folder}/"]
        return places.get(str(path.with_suffix("")))
    return wing_of


def is_umbrella(path):
    return path.parts[0] == "include" and path.stem in UMBRELLAS


def includes_of_umbrellas(files):
    """Returns the includes of umbrellas, (file, included), that files other than umbrellas have."""
    return [(path, name) for path, text in files.items() if not is_umbrella(path) for name in INCLUDE.findall(text)
            if name.startswith("cohort/") and is_umbrella(pathlib.Path("include") / name)]


def includes_of_wings(files, wing_of):
    """Returns the includes of wings' headers, (file, wing or None, included, its wing), that the core or another wing has. Umbrellas
    of public headers have none."""
    found = []
    for path, text in files.items():
        if is_umbrella(path):
            continue
        own = wing_of(path)
        for name in INCLUDE.findall(text):
            places = ["include"] if name.startswith("cohort/") else ["src", "tools/cohort"]
            included = next((pathlib.Path(place) / name for place in places if pathlib.Path(place) / name in files), None)
            wing = wing_of(included) if included else None
            if wing and wing != own:
                found.append((path, own, included, wing))
    return found
