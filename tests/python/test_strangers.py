# SPDX-License-Identifier: Apache-2.0
"""Strangers at the ports of ranks over TCP: they learn nothing, end no job and hold none up."""
import contextlib
import hashlib
import hmac
import os
import pathlib
import socket
import struct
import subprocess
import time

import numpy as np
import pytest
from program import BIN, FIXTURES, losses, run, write_random
from rank_jobs import free_port, torchrun_variables

MLP = FIXTURES / "mlp" / "d18.onnx"
# As in collectives/handshake.h.
HELLO, CHALLENGE, WELCOME = (0x3038706678_6E6E6F | i << 56 for i in (0x33, 0x34, 0x35))


def fnv(text):
    value = 14695981039346656037
    for letter in text.encode():
        value = (value ^ letter) * 1099511628211 % 2**64
    return value


class Stranger:
    """Speaks the protocol of a rank, with a secret of its own."""

    def __init__(self, port, rank=1, size=2, secret=b"", channel=1):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=10)
        self.port, self.rank, self.size, self.secret, self.channel = port, rank, size, secret, channel

    def code(self, side, nonce, text=b""):
        return hmac.digest(self.secret, side + b"\0" + self.hello + nonce + text, hashlib.sha256)

    def greet(self):
        job = fnv(f"{self.port}\n\n\n")
        self.hello = struct.pack("<QQIIII", HELLO, job, self.channel, self.size, self.rank, 0) + os.urandom(32)
        self.socket.sendall(self.hello)
        challenge = self.receive(72)
        assert challenge[:8] == struct.pack("<Q", CHALLENGE)
        self.nonce = challenge[8:40]
        return challenge[40:]

    def prove(self, text=b"127.0.0.1", length=None):
        self.socket.sendall(self.code(b"guest", self.nonce, text) + struct.pack("<Q", len(text) if length is None else length)
                            + text)

    def receive(self, count):
        data = b""
        while len(data) < count:
            with contextlib.suppress(ConnectionError):
                if part := self.socket.recv(count - len(data)):
                    data += part
                    continue
            break
        return data


class Ranks:
    """A job of two ranks whose second one starts later."""

    def __init__(self, words, **variables):
        self.port = free_port()
        self.words, self.variables = [BIN, *map(str, words), "--mesh", "dp=2", "--threads", "1"], variables
        self.processes = [self.start(0)]
        while True:
            with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", self.port)):
                return
            assert self.processes[0].poll() is None, self.processes[0].communicate()
            time.sleep(0.01)

    def start(self, rank):
        env = os.environ | {k: str(v) for k, v in (torchrun_variables(rank, 2, self.port) | self.variables).items()}
        return subprocess.Popen(self.words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def end(self):
        self.processes.append(self.start(1))
        texts = [text for process in self.processes for text in process.communicate(timeout=60)]
        assert [process.returncode for process in self.processes] == [0, 0], texts
        return "".join(texts)


@pytest.fixture(name="words")
def _words(tmp_path):
    return ["train", MLP, "--data", write_random(tmp_path / "d.npz", 40), "--loss", "cross_entropy", "--batch-size", 8,
            "--steps", 3, "--out", tmp_path / "run"]


def check(words, out, job):
    """The job trains as one process, and its secret is gone."""
    text = job.end()
    run(*words[:-1], out.parent / "one")
    np.testing.assert_allclose(list(losses(out).values()), list(losses(out.parent / "one").values()), rtol=1e-6)
    assert not list(out.glob("job_secret*"))
    return text


@pytest.mark.parametrize("secret", ["folder", "variable"])
def test_a_stranger_is_no_rank(words, tmp_path, secret):
    variables = {"ONNX_FP8_JOB_SECRET": "a secret of sixteen letters"} if secret == "variable" else {}
    job = Ranks(words, **variables)
    for text in (b"", b"GET / HTTP/1.1\r\n\r\n" * 9, os.urandom(4096)):  # garbage
        stranger = Stranger(job.port)
        stranger.socket.sendall(text)
        stranger.socket.close()
    for size, rank, length in [(2, 1, None), (2, 1, 2**62), (2, 77, None), (78, 77, None), (2**32 - 1, 2**31, None)]:
        stranger = Stranger(job.port, rank, size)
        assert stranger.greet() != stranger.code(b"host", stranger.nonce)
        stranger.prove(length=length)
        assert stranger.receive(1) == b""  # no welcome, and nobody's place
    text = check(words, tmp_path / "run", job)
    assert text.count("dropped a connection from 127.0.0.1:") == 1, text


def test_who_knows_the_secret_is_a_rank(words, tmp_path):
    """The codes are HMAC-SHA-256, of Python's library here."""
    job = Ranks(words)
    [file] = (tmp_path / "run").glob("job_secret*")
    assert file.stat().st_mode & 0o7777 == 0o600
    rank = Stranger(job.port, secret=file.read_bytes())
    assert rank.greet() == rank.code(b"host", rank.nonce)
    rank.prove()
    assert rank.receive(8) == struct.pack("<Q", WELCOME)
    assert b"127.0.0.1" not in rank.receive(16) and rank.receive(30).count(b"127.0.0.1") == 2  # the places of both
    job.processes[0].kill()
    job.processes[0].communicate()


def test_silent_connections_hold_no_job_up(words, tmp_path):
    job = Ranks(words)
    silent = [Stranger(job.port) for _ in range(200)]
    for stranger in silent[-50::2]:  # of the first ones, whose slots others have taken, nobody hears
        stranger.socket.sendall(b"\0" * 40)
    for stranger in silent[-49::2]:
        stranger.greet()
    check(words, tmp_path / "run", job)


def test_a_job_without_a_secret_goes_on_too(words, tmp_path):
    job = Ranks([*words, "--insecure"])
    assert not (tmp_path / "run").exists()
    for size, rank in [(2, 77), (78, 77), (2, 0)]:
        stranger = Stranger(job.port, rank, size)
        assert stranger.greet() == stranger.code(b"host", stranger.nonce)
        stranger.prove()
        answer = stranger.receive(4096)
        assert answer[:16] == struct.pack("<QQ", WELCOME, 1) and b"] expected " in answer
    check(words, tmp_path / "run", job)


def listening(pid):
    """Addresses at which a process listens."""
    inodes = set()
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the process has just closed it
            inodes.add(os.readlink(fd))
    rows = [line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[1] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in inodes}


@pytest.mark.parametrize("host", ["localhost", socket.gethostname()])
def test_only_the_named_address_is_bound(words, host):
    job = Ranks(words, MASTER_ADDR=host)
    # The job's second port opens behind the first.
    while len(addresses := listening(job.processes[0].pid)) < 2:
        assert job.processes[0].poll() is None
        time.sleep(0.01)
    assert len(addresses) == 2 and not any(address.startswith("00000000:") for address in addresses)
    job.end()


def test_a_secret_is_needed_on_a_network(words, tmp_path):
    def error(*more, code=1, **variables):
        env = os.environ | {name: str(value) for name, value in (torchrun_variables(0, 2, free_port()) | variables).items()}
        return run(*words, "--mesh", "dp=2", *more, code=code, env=env).stderr

    for name in ("empty", "short"):
        (tmp_path / name).write_text("too short\n" * (name == "short"))
    assert "short] expected at least 16 characters of a secret, got 9" in error("--job-secret", tmp_path / "short")
    assert "expected a file with a secret" in error("--job-secret", tmp_path / "empty")
    assert "none] expected a file with a secret" in error("--job-secret", tmp_path / "none")
    text = error(ONNX_FP8_JOB_SECRET="word")
    assert "[ONNX_FP8_JOB_SECRET] expected at least 16 characters" in text and "head -c 32 /dev/urandom | base64" in text
    # An address of another machine, which documents alone use.
    assert "[MASTER_ADDR] expected an address of rank 0's machine" in error(MASTER_ADDR="192.0.2.1", LOCAL_WORLD_SIZE=1)
    assert not (tmp_path / "run").exists()
