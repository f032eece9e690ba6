#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the image of a container file, and trains in it.

  try_container.py FILE PROGRAM STORAGE

buildah builds it; STORAGE keeps its images. No registry is asked: debootstrap makes debian:12 once. The weights that are
trained in the image must equal, byte by byte, the weights that PROGRAM trains outside. The script needs root.
"""
import fcntl
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

from try_wheels import ROOT, SAMPLE, TRAIN, mirror, weights

BASE = "docker.io/library/debian:12"


class Fault(Exception):
    """A command failed; the text has its output."""


def run(*command, shown=False, **options):
    output = {} if shown else {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    done = subprocess.run([*map(str, command)], text=True, **output, **options)
    if done.returncode:
        raise Fault(f"{' '.join(map(str, command))}\n{done.stdout or ''}{done.stderr or ''}")
    return done.stdout


def host_settings():
    """Options that give builds this machine's certificates and settings of pip."""
    for path in ("/usr/local/share/ca-certificates", "/etc/pip.conf"):
        if os.path.exists(path):
            yield f"--volume={path}:{path}:ro"


class Storage:
    """Images in a folder. They are kept as plain folders, and containers start by chroot: overlays and namespaces of
    networks may be missing."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def buildah(self, *command, **options):
        return run("buildah", "--root", self.folder / "images", "--runroot", self.folder / "run",
                   "--storage-driver", "vfs", *command, **options)

    def tidy(self):
        """Removes what a killed run has left, and images that have lost their names."""
        self.buildah("rm", "--all")
        self.buildah("rmi", "--prune")

    def names(self):
        images = json.loads(self.buildah("images", "--json") or "null") or []
        return {name for image in images for name in image["names"] or []}

    def make_base(self, fill):
        """An image that `fill` writes to a folder; it is debian:12 for container files."""
        container = self.buildah("from", "scratch").strip()
        try:
            fill(pathlib.Path(self.buildah("mount", container).strip()))
            self.buildah("commit", "--quiet", container, BASE)
        finally:
            self.buildah("rm", container)

    def build(self, file, name, *options, **shown):
        self.buildah("bud", "--isolation=chroot", "--pull-never", f"--file={file}", f"--tag={name}", *options, ROOT,
                     **shown)

    def run(self, name, folder, *arguments, user="0:0"):
        """The output of the image's program in a container, whose working folder is `folder` outside."""
        container = self.buildah("from", "--pull-never", name).strip()
        try:
            config = json.loads(self.buildah("inspect", container))["OCIv1"]["config"]
            return self.buildah("run", "--isolation=chroot", f"--user={user}",
                                f"--volume={folder}:{config['WorkingDir']}", container, "--", *config["Entrypoint"],
                                *arguments)
        finally:
            self.buildah("rm", container)

    def trained(self, name, folder):
        """The weights that the image trains in a new folder."""
        shutil.copytree(SAMPLE, folder)
        self.run(name, folder, *TRAIN, "--out", "run")
        return weights(folder / "run")


def trained_outside(program, folder):
    shutil.copytree(SAMPLE, folder)
    run(program, *TRAIN, "--out", "run", cwd=folder)
    return weights(folder / "run")


def debootstrap(root):
    print("debootstrap makes debian:12 (1½ min, 0.2 GB on disk)", flush=True)
    run("debootstrap", "--variant=minbase", "bookworm", root, mirror())


def main():
    file, program, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    if os.geteuid():
        sys.exit("try_container.py: expected root, who may make a chroot")
    folder.mkdir(parents=True, exist_ok=True)
    lock = open(folder / "lock", "w")  # until the script ends
    fcntl.flock(lock, fcntl.LOCK_EX)
    storage = Storage(folder)
    storage.tidy()
    name = f"onnx-fp8{file.suffix.replace('.', '-')}"
    if BASE not in storage.names():
        storage.make_base(debootstrap)
    storage.build(file, name, *host_settings(), shown=True)
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        if storage.trained(name, work / "inside") != trained_outside(program, work / "outside"):
            sys.exit(f"try_container.py: {file.name}: another trained model than here")
        print(storage.run(name, work, "version"))
    print(f"{file.name}: the image trains the same model as the program outside")


if __name__ == "__main__":
    try:
        main()
    except Fault as fault:
        sys.exit(f"try_container.py: {fault}")
