# SPDX-License-Identifier: Apache-2.0
"""The list of what is inside a wheel. The wheel here has some libraries of the build, and no more;
tests/python_package looks at a whole one."""
import base64
import csv
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

from program import BIN, leave_out

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import sbom  # noqa: E402

BUILD = pathlib.Path(BIN).resolve().parent
INFO = "onnx_fp8-0.1.0.dist-info"


def write_wheel(folder, files):
    path = folder / "onnx_fp8-0.1.0-cp311-cp311-manylinux_2_35_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in {f"{INFO}/METADATA": "Name: onnx-fp8\n", f"{INFO}/WHEEL": "Wheel-Version: 1.0\n",
                           f"{INFO}/RECORD": "", **files}.items():
            archive.writestr(name, data)
    return path


def run(wheel, build=BUILD, **variables):
    return subprocess.run([sys.executable, ROOT / "scripts/sbom.py", build, wheel], env=os.environ | variables,
                          capture_output=True, text=True)


def check_record(archive):
    with archive.open(f"{INFO}/RECORD") as file:
        rows = list(csv.reader(file.read().decode().splitlines()))
    assert sorted(name for name, _, _ in rows) == sorted(name for name in archive.namelist() if not name.endswith("/"))
    for name, digest, size in rows:
        if not name.endswith("/RECORD"):
            data = archive.read(name)
            encoded = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, int(size)) == (f"sha256={encoded}", len(data)), name


def test_all_of_notice_is_listed(tmp_path):
    parts = ["libonnx_fp8_crypto.so", "libonnx_fp8_ort.so"]
    with_ort = (BUILD / parts[1]).exists()
    if not with_ort:
        leave_out("ONNX Runtime in the list of what is in a wheel: the build has no headers of it")
    files = {f"onnx_fp8/{name}": (BUILD / name).read_bytes() for name in parts if (BUILD / name).exists()}
    texts = []
    for folder in (tmp_path / "a", tmp_path / "b"):  # the place makes no difference
        folder.mkdir()
        wheel = write_wheel(folder, files)
        done = run(wheel)
        assert done.returncode == 0, done.stderr
        texts.append((folder / f"{wheel.name}.cdx.json").read_text())
        assert sorted(path.name for path in folder.iterdir()) == [wheel.name, f"{wheel.name}.cdx.json"]
        with zipfile.ZipFile(wheel) as archive:
            check_record(archive)
            assert archive.read(f"{INFO}/sboms/onnx_fp8.cdx.json").decode() == texts[-1]
    text = texts[0]
    assert text == texts[1]
    assert not [word for word in (ROOT, tmp_path, pathlib.Path.home(), "/usr/") if str(word) in text]

    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"], document["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f-]{36}", document["serialNumber"]) and "timestamp" not in document["metadata"]
    main = document["metadata"]["component"]
    assert (main["name"], main["version"], main["purl"]) == ("onnx-fp8", "0.1.0", "pkg:pypi/onnx-fp8@0.1.0")
    parts = {part["name"]: part for part in document["components"]}
    # NOTICE itself, read in another way.
    head = (ROOT / "NOTICE").read_text().split("\n----")[0]
    names = {line[2:22].strip() for line in head.splitlines() if re.match(r"  \S.*Copyright", line)}
    assert len(names) == 12
    names -= {"libc++", "Zig"}  # of the preset portable
    assert set(parts) == (names | {"zlib"} if with_ort else names - {"ONNX Runtime"})
    for part in (main, *parts.values()):
        assert part["type"] == "library" and part["bom-ref"] == part["purl"] and part["purl"].startswith("pkg:")
        assert re.search(r"\d", part["version"]) and part["licenses"][0]["license"]["id"]
    assert parts["JSON for Modern C++"]["licenses"] == [{"license": {"id": "MIT"}}]
    pins = (ROOT / "dev").read_text()
    for name in ("ONNX", "Protocol Buffers", "nanobind"):
        [reference] = parts[name]["externalReferences"]
        assert re.fullmatch("[0-9a-f]{64}", reference["hashes"][0]["content"])
        assert name == "nanobind" or f"_SHA256={reference['hashes'][0]['content']}\n" in pins
    # The graph has each of them once, and names no other.
    uses = {entry["ref"]: entry["dependsOn"] for entry in document["dependencies"]}
    assert len(uses) == len(document["dependencies"]) == len(parts) + 1
    assert {main["purl"], *sum(uses.values(), [])} == set(uses)
    assert uses[parts["nanobind"]["purl"]] == [parts["robin-map"]["purl"]]

    stamped = run(wheel, SOURCE_DATE_EPOCH="1000000000")
    assert stamped.returncode == 0
    assert '"timestamp": "2001-09-09T01:46:40Z"' in wheel.with_name(f"{wheel.name}.cdx.json").read_text()


def test_libraries_that_auditwheel_copied(tmp_path):
    other = {"type": "library", "bom-ref": "pkg:deb/debian/foo@2#1", "name": "foo", "version": "2", "purl": "pkg:deb/debian/foo@2"}
    listed = {"metadata": {"component": {"bom-ref": "main"}}, "components": [{"bom-ref": "main"}, other]}
    files = {"onnx_fp8.libs/libfoo-0123.so": "foo", f"{INFO}/sboms/auditwheel.cdx.json": json.dumps(listed)}
    document = sbom.make(BUILD, write_wheel(tmp_path, files))
    assert other in document["components"] and document["dependencies"][-1] == {"ref": other["bom-ref"], "dependsOn": []}
    assert other["bom-ref"] in document["dependencies"][0]["dependsOn"]
    # There is no OpenSSL without its part.
    assert "OpenSSL libcrypto" not in {part["name"] for part in document["components"]}
    done = run(write_wheel(tmp_path, {"onnx_fp8.libs/libfoo-0123.so": "foo"}))
    assert done.returncode == 1 and "expected the packages of ['onnx_fp8.libs/libfoo-0123.so'] in auditwheel's list" in done.stderr


def test_versions_that_are_not_known(tmp_path, monkeypatch):
    wheel = write_wheel(tmp_path, {})
    before = wheel.read_bytes()
    cache = (BUILD / "CMakeCache.txt").read_text()
    for pattern, put, words in (
            (r"^absl_DIR:.*\n", "", "expected `^absl_DIR:"),
            (r"^nlohmann_json_DIR:.*$", f"nlohmann_json_DIR:PATH={tmp_path}", "expected a package with"),
            (r"^NB_DIR:.*$", f"NB_DIR:INTERNAL={tmp_path}/nanobind", "expected the package nanobind in")):
        (tmp_path / "CMakeCache.txt").write_text(re.sub(pattern, put, cache, flags=re.M))
        done = run(wheel, tmp_path)
        assert done.returncode == 1 and f"sbom.py: {words}" in done.stderr and "Traceback" not in done.stderr
        assert wheel.read_bytes() == before and not list(tmp_path.glob("*.cdx.json"))
    # A library that NOTICE names anew.
    (tmp_path / "NOTICE").write_text("MIT License\n  libnew   Copyright (c) Somebody\n\n---- MIT License\n")
    monkeypatch.setattr(sbom, "ROOT", tmp_path)
    try:
        sbom.make(BUILD, wheel)
    except SystemExit as fault:
        assert "where to ask for the version of libnew" in str(fault)
    else:
        raise AssertionError("an unknown library passes")
