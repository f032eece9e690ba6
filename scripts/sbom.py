#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what is inside a wheel, as CycloneDX 1.6, into the wheel (PEP 770) and beside it.

  sbom.py BUILD WHEEL

NOTICE has the names and licenses of the libraries that are built in. Their versions are asked where BUILD took them
from, and nowhere else: of Debian's packages, headers and pins. A version that can't be known is an error. auditwheel's
own list has the libraries that it copied. The same wheel gives the same file.
"""
import datetime
import gzip
import importlib.metadata
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import uuid
import zipfile
from urllib.parse import quote

import hash_requirements
import pip_index

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAME = "onnx_fp8.cdx.json"
LICENSES = {"Apache License 2.0": "Apache-2.0",
            "Apache License 2.0 with LLVM exceptions": "Apache-2.0 WITH LLVM-exception",
            "BSD 3-Clause License": "BSD-3-Clause", "MIT License": "MIT"}
# Libraries that are in one file alone, which a build may leave out.
ONLY_IN = {"OpenSSL libcrypto": "libonnx_fp8_crypto.so", "ONNX Runtime": "libonnx_fp8_ort.so"}
OF_ZIG = ("libc++", "Zig")  # inside what it links
USES = {"nanobind": ["robin-map"], "ONNX": ["Protocol Buffers"], "Protocol Buffers": ["zlib"]}


def known(value, what):
    if not value:
        sys.exit(f"sbom.py: expected {what}, got none")
    return value


def found(pattern, path):
    """The first group of the pattern in a file."""
    path = pathlib.Path(path)
    match = re.search(pattern, path.read_text(errors="replace"), re.M) if path.is_file() else None
    return known(match, f"`{pattern}` in {path}")[1]


def noticed():
    """{name: (SPDX id, copyright)} of NOTICE, in its order."""
    libraries, license_id, name = {}, None, None
    for line in (ROOT / "NOTICE").read_text().split("\n----", 1)[0].splitlines():
        entry = re.match(r"  (\S.*?) +(Copyright .*)", line)
        if entry and license_id:
            name = entry[1]
            libraries[name] = (license_id, entry[2])
        elif line in LICENSES:
            license_id = LICENSES[line]
        elif name and line.startswith("   ") and not line.lstrip().startswith("("):
            libraries[name] = (license_id, f"{libraries[name][1]} {line.strip()}")
    return libraries


class Build:
    """Facts of each library, by its name in NOTICE: (version, purl, further fields)."""

    def __init__(self, folder):
        self.folder = folder
        system = dict(re.findall(r'^(\w+)="?([^"\n]*)', pathlib.Path("/etc/os-release").read_text(), re.M))
        self.system, self.release = system.get("ID", ""), system.get("VERSION_ID", "")

    def path(self, variable):
        return pathlib.Path(found(rf"^{variable}:\w+=(.+)$", self.folder / "CMakeCache.txt"))

    def packaged(self, file):
        """Version and purl of the system's package that has the file."""
        root = (self.folder / "CMakeCache.txt").read_text().partition("\nONNX_FP8_AARCH64_ROOT:PATH=")[2].partition("\n")[0]
        query = ["dpkg-query", f"--admindir={root}/var/lib/dpkg"]  # of the system, or of unpacked packages
        said = subprocess.run([*query, "-S", str(file).removeprefix(root)], capture_output=True, text=True).stdout
        package = known(said, f"a package with {file}").rpartition(": ")[0]
        said = subprocess.run([*query, "-W", "-f", "${source:Package} ${source:Version}", package],
                              capture_output=True, text=True).stdout
        source, version = known(said, f"a version of {package}").split()
        distro = f"&distro={self.system}-{self.release}" if self.release else ""
        return version, f"pkg:deb/{self.system}/{source}@{quote(version, safe='~')}?arch=source{distro}", {}

    def pinned(self, variable):
        return found(rf"^readonly {variable}=(\S+)", ROOT / "dev")

    def archive(self, kind, purl, sha256):
        return {"externalReferences": [{"type": kind, "url": purl, "hashes": [{"alg": "SHA-256", "content": sha256}]}]}

    def onnx(self):
        config = self.path("ONNX_FP8_ONNX_DIR") / "lib/cmake/ONNX/ONNXConfigVersion.cmake"
        version, purl = found(r'PACKAGE_VERSION "([\d.]+)"', config), "pkg:pypi/onnx@"
        if version != self.pinned("ONNX_VERSION"):
            sys.exit(f"sbom.py: expected ONNX {self.pinned('ONNX_VERSION')}, as `dev` says, got {version} in {config}")
        return version, purl + version, self.archive("source-distribution", purl + version, self.pinned("ONNX_SHA256"))

    def protobuf(self):
        header = self.path("Protobuf_INCLUDE_DIR") / "google/protobuf/stubs/common.h"  # of the same version as the library
        number = int(found(r"^#define GOOGLE_PROTOBUF_VERSION (\d+)", header))
        version = f"{number // 1000000}.{number // 1000 % 1000}.{number % 1000}"
        package, _, release = self.pinned("PROTOBUF_SOURCES").rpartition("-")
        return version, f"pkg:generic/protobuf@{version}", self.archive(
            "source-distribution", f"pkg:pypi/{package}@{release}", self.pinned("PROTOBUF_SHA256"))

    def pypi(self, package, packages, requirements):
        """A package that is installed in the folder `packages`; the file of requirements has its hash."""
        versions = [part.version for part in importlib.metadata.distributions(name=package, path=[str(packages)])]
        version = known(versions, f"the package {package} in {packages}")[0]
        purl, fields = f"pkg:pypi/{package}@{version}", {}
        for name, pin, hashes in filter(lambda item: not isinstance(item, str),
                                        hash_requirements.parse((ROOT / "scripts" / requirements).read_text())):
            if (pip_index.normalized(name), pin, len(hashes)) == (package, version, 1):
                fields = self.archive("distribution", purl, hashes[0])
        return version, purl, fields

    def nanobind(self):
        return self.pypi("nanobind", self.path("NB_DIR").parent, "requirements.txt")

    def robin_map(self):
        header = self.path("NB_DIR") / "ext/robin_map/include/tsl/robin_growth_policy.h"
        version = ".".join(found(rf"^#define TSL_RH_VERSION_{part} (\d+)", header) for part in ("MAJOR", "MINOR", "PATCH"))
        return version, f"pkg:github/tessil/robin-map@v{version}", {}

    def onnxruntime(self):
        """From a package of Debian, unpacked or installed, or from an SDK."""
        headers = self.path("ONNX_FP8_ORT_INCLUDE")
        changes = headers.parents[1] / "share/doc/libonnxruntime-dev/changelog.Debian.gz"
        if changes.is_file():
            with gzip.open(changes, "rt", encoding="utf-8") as file:
                version = known(re.match(r"onnxruntime \((\S+)\)", file.readline()), f"a version in {changes}")[1]
            return version, f"pkg:deb/debian/onnxruntime@{quote(version, safe='~')}?arch=source", {}
        version = found(r"^([\d.]+)", headers.parent / "VERSION_NUMBER")
        return version, f"pkg:github/microsoft/onnxruntime@v{version}", {}

    def has_zig(self):
        return "\nONNX_FP8_ZIG:" in (self.folder / "CMakeCache.txt").read_text()

    def zig(self):
        return self.pypi("ziglang", self.path("ONNX_FP8_ZIG").parents[1], "requirements-portable.txt")

    def libcxx(self):
        said = subprocess.run([self.path("ONNX_FP8_ZIG"), "c++", "--version"], capture_output=True, text=True).stdout
        version = known(re.search(r"clang version ([\d.]+)", said), "a version of zig's clang")[1]
        return version, f"pkg:generic/libcxx@{version}", {}

    def facts(self, name):
        by_name = {
            "ONNX": self.onnx, "Protocol Buffers": self.protobuf, "nanobind": self.nanobind, "robin-map": self.robin_map,
            "ONNX Runtime": self.onnxruntime, "libc++": self.libcxx, "Zig": self.zig,
            "Abseil": lambda: self.packaged(self.path("absl_DIR") / "abslConfig.cmake"),
            "Chart.js": lambda: self.packaged(self.path("ONNX_FP8_CHART_JS").resolve()),
            "FlatBuffers": lambda: self.packaged(self.path("FLATBUFFERS_INCLUDE") / "flatbuffers/flatbuffers.h"),
            "OpenSSL libcrypto": lambda: self.packaged(self.path("OPENSSL_CRYPTO_LIBRARY")),
            "JSON for Modern C++": lambda: self.packaged(self.path("nlohmann_json_DIR") / "nlohmann_jsonConfig.cmake"),
            "zlib": lambda: self.packaged(self.path("ZLIB_INCLUDE_DIR") / "zlib.h"),
        }
        return known(by_name.get(name), f"where to ask for the version of {name}, which NOTICE names,")()


def component(name, license_id, version, purl, fields):
    return {"type": "library", "bom-ref": purl, "name": name, "version": version,
            "licenses": [{"expression": license_id} if " " in license_id else {"license": {"id": license_id}}],
            "purl": purl, **fields}


def needed(archive):
    """The libraries that those in the wheel are linked to, and that are not in it."""
    from elftools.elf.dynamic import DynamicSection
    from elftools.elf.elffile import ELFFile
    inside = {name.rpartition("/")[2] for name in archive.namelist()}
    names = set()
    for member in archive.namelist():
        data = archive.read(member) if ".so" in member else b""
        if data.startswith(b"\x7fELF"):
            names.update(tag.needed for section in ELFFile(io.BytesIO(data)).iter_sections()
                         if isinstance(section, DynamicSection) for tag in section.iter_tags("DT_NEEDED"))
    return sorted(names - inside)


def copied(archive):
    """The components of auditwheel's list."""
    libraries = [name for name in archive.namelist() if re.match(r"[^/]+\.libs/.", name)]
    lists = [name for name in archive.namelist() if name.endswith(".dist-info/sboms/auditwheel.cdx.json")]
    document = json.loads(archive.read(lists[0])) if lists else {"components": []}
    main = document.get("metadata", {}).get("component", {}).get("bom-ref")
    components = [part for part in document["components"] if part["bom-ref"] != main]
    if len(components) != len(libraries):
        sys.exit(f"sbom.py: expected the packages of {libraries} in auditwheel's list, got {components}")
    return components


def make(build, wheel):
    """The document."""
    build = Build(pathlib.Path(build))
    with zipfile.ZipFile(wheel) as archive:
        files = {name.rpartition("/")[2] for name in archive.namelist()}
        system, theirs = needed(archive), copied(archive)
    version = wheel.name.split("-")[1]
    purl = f"pkg:pypi/onnx-fp8@{version}"
    main = component("onnx-fp8", "Apache-2.0", version, purl, {
        "properties": [{"name": "onnx_fp8:needs", "value": name} for name in system]})
    parts = {name: component(name, license_id, *build.facts(name)) | {"copyright": holder}
             for name, (license_id, holder) in noticed().items()
             if (ONLY_IN.get(name) is None or ONLY_IN[name] in files) and (name not in OF_ZIG or build.has_zig())}
    if "libz.so.1" in system:
        parts["zlib"] = component("zlib", "Zlib", *build.facts("zlib")) | {
            "properties": [{"name": "onnx_fp8:inside", "value": "no: the system's libz.so.1; this is the version at the build"}]}
    used = {name: [parts[other]["bom-ref"] for other in others if other in parts] for name, others in USES.items()}
    indirect = {"robin-map"}
    document = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json", "bomFormat": "CycloneDX", "specVersion": "1.6",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "build"}], "component": main},
        "components": [*parts.values(), *theirs],
        "dependencies": [
            {"ref": purl, "dependsOn": [part["bom-ref"] for name, part in parts.items() if name not in indirect] +
             [part["bom-ref"] for part in theirs]},
            *({"ref": part["bom-ref"], "dependsOn": used.get(name, [])} for name, part in parts.items()),
            *({"ref": part["bom-ref"], "dependsOn": []} for part in theirs)],
    }
    if os.environ.get("SOURCE_DATE_EPOCH"):
        time = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
        document["metadata"]["timestamp"] = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_OID, json.dumps(document)).urn
    return document


def add(build, wheel):
    """Puts the document into the wheel and beside it."""
    from auditwheel.wheeltools import InWheel  # which writes RECORD anew
    text = json.dumps(make(build, wheel), indent=2) + "\n"
    made = wheel.with_name(wheel.name + ".new")
    with InWheel(wheel, made) as tree:
        [info] = pathlib.Path(tree).glob("*.dist-info")
        (info / "sboms").mkdir(exist_ok=True)
        (info / "sboms" / NAME).write_text(text)
    os.replace(made, wheel)
    beside = wheel.with_name(wheel.name + ".cdx.json")
    beside.write_text(text)
    return beside


def main():
    build, wheel = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    print(add(build, wheel))


if __name__ == "__main__":
    main()
