# SPDX-License-Identifier: Apache-2.0
"""All that `./dev` downloads from a package index has a hash. The index here is a server on this machine."""
import functools
import hashlib
import http.server
import os
import pathlib
import subprocess
import sys
import threading

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import hash_requirements  # noqa: E402


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


class Handler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


@pytest.fixture
def index(tmp_path):
    """serve(files, hashes=True): publishes {name: text} as files of `thing`; the environment of a pip that asks it."""
    folder = tmp_path / "index"
    (folder / "thing").mkdir(parents=True)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def serve(files, hashes=True):
        for name, text in files.items():
            (folder / name).write_text(text)
        (folder / "thing/index.html").write_text("".join(
            f'<a href="../{name}{"#sha256=" + digest(text) if hashes else ""}">{name}</a>' for name, text in files.items()))
        kept = {name: value for name, value in os.environ.items()
                if not name.startswith("PIP_") and not name.lower().endswith("_proxy")}
        return kept | {"PIP_INDEX_URL": f"http://user:word@127.0.0.1:{server.server_port}/"}

    yield serve
    server.shutdown()
    server.server_close()


def run(script, *words, env=None):
    done = subprocess.run([sys.executable, ROOT / "scripts" / script, *words], env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("wheel, good", [
    ("a-1-py3-none-any.whl", True),
    ("a-1-py2.py3-none-any.whl", True),
    ("a-1-py3-none-manylinux2014_x86_64.manylinux_2_17_x86_64.whl", True),
    ("a-1-cp311-cp311-manylinux_2_28_x86_64.whl", True),
    ("a-1-2build-cp314-cp314-linux_x86_64.whl", True),
    ("a-1-cp39-abi3-manylinux_2_28_x86_64.whl", True),
    ("a-1-cp310-cp310-manylinux_2_28_x86_64.whl", False),
    ("a-1-cp313-cp313t-manylinux_2_28_x86_64.whl", False),
    ("a-1-cp311-cp311-musllinux_1_2_x86_64.whl", False),
    ("a-1-cp311-cp311-manylinux_2_28_aarch64.whl", False),
    ("a-1-cp311-cp311-win_amd64.whl", False),
    ("a-1-py2-none-any.whl", False),
    ("a-1-pp311-pypy311_pp73-manylinux_2_28_x86_64.whl", False),
])
def test_which_wheels_count(wheel, good):
    assert hash_requirements.usable(wheel) == good


def test_hashes_are_written_in_place(index, tmp_path):
    wheels = {"thing-2.0-cp312-cp312-manylinux_2_28_x86_64.whl": "a", "thing-2.0-cp311-cp311-manylinux_2_28_x86_64.whl": "b"}
    env = index(wheels | {"thing-2.0-cp311-cp311-win_amd64.whl": "c", "thing-2.0.tar.gz": "d", "thing-2.1-py3-none-any.whl": "e"})
    file = tmp_path / "requirements.txt"
    first, second = sorted(digest(text) for text in wheels.values())
    want = f"# Things.\nthing==2.0 \\\n    --hash=sha256:{first} \\\n    --hash=sha256:{second}\n\n# Others.\n"
    for before in ("# Things.\nthing==2.0\n\n# Others.\n", want, want.replace(first, second)):
        file.write_text(before)
        assert run("hash_requirements.py", file, env=env)[0] == 0
        assert file.read_text() == want
    for line, words in (("thing>=2.0", "expected NAME==VERSION"), ("-r other.txt", "expected NAME==VERSION"),
                        ("thing==3.0", "thing==3.0: the index has no wheel"), ("other==3.0", "404")):
        file.write_text(line + "\n")
        code, said = run("hash_requirements.py", file, env=env)
        assert code == 1 and words in said and "Traceback" not in said
        assert file.read_text() == line + "\n"
    file.write_text("thing==2.0\n")
    code, said = run("hash_requirements.py", file, env=index(wheels, hashes=False))
    assert code == 1 and "publishes no SHA-256" in said


def test_requirements_of_the_tree_have_hashes(tmp_path, monkeypatch):
    assert run("hash_requirements.py", "--check") == (0, "requirements: all have hashes\n")
    # A copy of the tree, with faults.
    (tmp_path / "scripts").mkdir()
    for path in (*ROOT.glob("scripts/requirements*.txt"), ROOT / "pyproject.toml"):
        (tmp_path / path.relative_to(ROOT)).write_text(path.read_text())
    monkeypatch.setattr(hash_requirements, "ROOT", tmp_path)
    assert not list(hash_requirements.faults())
    scripts = tmp_path / "scripts"
    (scripts / "requirements-wild.txt").write_text("a==1\nb>=2\n")
    (scripts / "requirements-torch.txt").write_text("a==1\nA==2 --hash=sha256:" + 64 * "a" + "\n")
    build = scripts / "requirements-build.txt"
    build.write_text(build.read_text().replace("nanobind==", "nanobind==9"))
    found = "\n".join(hash_requirements.faults())
    for words in ("requirements-wild.txt: expected NAME==VERSION", "got b>=2", "requirements-torch.txt: a==1 has no hash",
                  "requirements-torch.txt: a package has two lines", "in pyproject.toml 3", "in requirements.txt 3"):
        assert words in found


@pytest.mark.parametrize("hashes", [True, False])
def test_source_packages_are_compared_before_they_are_there(hashes, index, tmp_path):
    env, file = index({"thing-2.0.tar.gz": "sources"}, hashes), tmp_path / "thing-2.0.tar.gz"
    code, said = run("fetch_sdist.py", "thing-2.0", digest("others"), file, env=env)
    assert code == 1 and f"expected thing-2.0.tar.gz with the SHA-256 {digest('others')}, got {digest('sources')}" in said
    assert not list(tmp_path.glob("*.gz*"))
    code, said = run("fetch_sdist.py", "thing-2.1", digest("sources"), file, env=env)
    assert code == 1 and "got none" in said
    assert run("fetch_sdist.py", "thing-2.0", digest("sources"), file, env=env) == (0, "")
    assert file.read_text() == "sources"


def test_source_packages_of_a_folder(index, tmp_path):
    """Also where there is no index; a file of another hash does not count."""
    env = index({"thing-2.0.tar.gz": "sources"})
    links, file = tmp_path / "links", tmp_path / "thing-2.0.tar.gz"
    links.mkdir()
    (links / file.name).write_text("others")
    env["PIP_FIND_LINKS"] = str(links)
    assert run("fetch_sdist.py", "thing-2.0", digest("sources"), file, env=env) == (0, "")
    assert file.read_text() == "sources"
    env["PIP_NO_INDEX"] = "1"
    assert run("fetch_sdist.py", "thing-2.0", digest("others"), file, env=env) == (0, "")
    assert file.read_text() == "others"
    assert run("fetch_sdist.py", "thing-2.0", digest("sources"), file, env=env)[0] == 1
