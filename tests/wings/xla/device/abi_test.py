#!/usr/bin/env python3
"""Compares src/wings/xla/device/pjrt_*.h with OpenXLA's pjrt_c_api.h: the place and size of every field of every structure, the place of every
function in the table, the value of every constant. The comparison is made by a compiler, of assertions that are written here, one for
each field that our headers declare.

The header comes with XLA's plugin for CPUs (scripts/install-deps.sh xla). Where it is not, the test is skipped.

usage: abi_test.py REPOSITORY FOLDER_OF_PLUGINS COMPILER
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
HEADER = "pjrt_c_api.h"
OURS = ["pjrt_abi.h", "pjrt_programs.h"]
# Names that are not OpenXLA's without a prefix and an underscore.
NAMES = {"ClientDevicesArgs": "PJRT_Client_Devices_Args", "MemoryLayout": "PJRT_Buffer_MemoryLayout",
         "MemoryLayoutTiled": "PJRT_Buffer_MemoryLayout_Tiled", "CompileArgs": "PJRT_Compile_Args", "Api": "PJRT_Api"}
VALUES = {"NamedValueType": "PJRT_NamedValue_", "HostBufferSemantics": "PJRT_HostBufferSemantics_",
          "MemoryLayoutType": "PJRT_Buffer_MemoryLayout_Type_", "ErrorCode": "PJRT_Error_Code_"}
SUBJECTS = ["DeviceDescription", "TopologyDescription", "LoadedExecutable", "Executable", "Client", "Device", "Buffer", "Error",
            "Event", "Plugin"]


def folders():
    """The folders in which the header may be: beside plugins of the build, and beside those that the environment names."""
    named = [pair.partition(":")[2] for pair in os.environ.get("PJRT_NAMES_AND_LIBRARY_PATHS", "").split(",") if pair]
    yield from (pathlib.Path(path).parent / "include" for path in named)
    yield pathlib.Path(sys.argv[2]) / "xla_plugins/xla_cpu_pjrt/include"


def their_name(own):
    if own in NAMES:
        return NAMES[own]
    for subject in SUBJECTS:
        if own.startswith(subject) and own.endswith("Args"):
            return f"PJRT_{subject}_{own[len(subject):-len('Args')]}_Args"
    words = re.sub(r"Args$", "_Args", own)
    return "PJRT_" + {"ApiVersion": "Api_Version"}.get(own, words)


def function_name(own, theirs):
    """The name in OpenXLA's table of a function with this name in ours, or None for one that is not used."""
    folded = own.replace("_", "")
    for name in theirs:
        if name.replace("_", "").lower() == "pjrt" + folded:
            return name
    sys.exit(f"abi_test: {HEADER} has no function like {own}")


def without_comments(text):
    return re.sub(r"//[^\n]*", "", text)


def assertions(ours, theirs):
    functions = re.findall(r"_PJRT_API_STRUCT_FIELD\((\w+)\)", theirs)
    for name, body in re.findall(r"^struct (\w+) \{\n(.*?)^\};", ours, re.S | re.M):
        flat = re.sub(r" = [^;]*;", ";", re.sub(r"union \{(.*?)\};", r"\1", body, flags=re.S))
        if name == "Api":
            for kind, field in re.findall(r"^\s*(\S.*?)[\s*](\w+)(?:\[\d+\])?;", flat, re.M):
                if kind.startswith("Function") or "(*" in kind:
                    yield f"SAME_FUNCTION({field}, {function_name(field, functions)})"
            for field in re.findall(r"void \(\*(\w+)\)\(", flat):
                yield f"SAME_FUNCTION({field}, {function_name(field, functions)})"
            continue
        yield f"SAME_SIZE({name}, {their_name(name)})"
        fields = re.findall(r"(?:^|[\s*])(\w+);", flat) + re.findall(r"\(\*(\w+)\)\(", flat)
        for field in fields:
            yield f"SAME_FIELD({name}, {their_name(name)}, {field})"
    for name, body in re.findall(r"^enum (\w+) : int \{(.*?)\};", ours, re.S | re.M):
        for constant in re.findall(r"\bk(\w+)", body):
            theirs_constant = constant
            if name == "ErrorCode":
                theirs_constant = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", constant).upper()
            elif name in ("NamedValueType", "HostBufferSemantics"):
                theirs_constant = "k" + constant
            yield f"SAME_VALUE(k{constant}, {VALUES[name]}{theirs_constant})"


def main():
    header = next((folder / HEADER for folder in folders() if (folder / HEADER).is_file()), None)
    if header is None:
        print(f"abi_test: skipped, {HEADER} is not here; scripts/install-deps.sh xla brings it")
        return SKIPPED
    root = pathlib.Path(sys.argv[1])
    ours = "".join(without_comments((root / "src/wings/xla/device" / name).read_text(encoding="utf-8")) for name in OURS)
    checks = list(assertions(ours, header.read_text(encoding="utf-8")))
    if len(checks) < 350:
        print(f"abi_test: {len(checks)} fields, functions and constants were found in our headers, wanted 350 or more")
        return 1
    source = (root / "tests/wings/xla/device/abi_check.cpp").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "abi_check.cpp"
        file.write_text(source.replace("// GENERATED", "\n".join(f"{check};" for check in checks)), encoding="utf-8")
        command = [sys.argv[3], "-std=c++20", "-fsyntax-only", "-Wno-invalid-offsetof", "-I", root / "src", "-I", header.parent, file]
        run = subprocess.run(command, text=True, capture_output=True, check=False)
        print(run.stderr, end="")
    print(f"abi_test: {len(checks)} fields, functions and constants compared with {header}")
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
