# SPDX-License-Identifier: Apache-2.0
"""The package index that pip is configured to use, read without pip: nothing of a package runs.

What counts is pip's own configuration: index-url, extra-index-url, no-index, find-links, cert and proxy, in the
environment (PIP_INDEX_URL) or in its files.
"""
import ast
import collections
import functools
import html.parser
import os
import pathlib
import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request

TRIES = 3
File = collections.namedtuple("File", "name url sha256")  # sha256: "" if the index does not say


class IndexFault(Exception):
    pass


def normalized(name):
    return re.sub(r"[-_.]+", "-", name).lower()


@functools.cache
def _settings():
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], check=True, capture_output=True, text=True)
    pairs = (line.split("=", 1) for line in listed.stdout.splitlines() if "=" in line)
    return {key: str(ast.literal_eval(value)) for key, value in pairs}


def setting(name):
    """The environment counts before pip's files, `install` in them before `global`."""
    found = (_settings().get(f"{section}.{name}") for section in (":env:", "install", "global"))
    return next(filter(None, found), "")


def indexes():
    if setting("no-index").lower() in ("1", "true", "yes", "on"):
        return []
    first = setting("index-url")
    if not first:
        from pip._internal.models.index import PyPI
        first = PyPI.simple_url
    return [url.rstrip("/") for url in (first, *setting("extra-index-url").split())]


def local_files():
    """The files in the folders of find-links."""
    for word in setting("find-links").split():
        folder = pathlib.Path(urllib.parse.unquote(word.removeprefix("file://"))).expanduser()
        if folder.is_dir():
            yield from sorted(folder.iterdir())


@functools.cache
def _opener():
    authority = setting("cert") or os.environ.get("REQUESTS_CA_BUNDLE")
    context = ssl.create_default_context(
        **{"capath" if os.path.isdir(authority) else "cafile": authority} if authority else {})
    passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
    for index in indexes():
        parts = urllib.parse.urlsplit(index)
        if parts.username:
            passwords.add_password(None, _without_user(index), urllib.parse.unquote(parts.username),
                                   urllib.parse.unquote(parts.password or ""), is_authenticated=True)
    proxy = setting("proxy")
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({"http": proxy, "https": proxy} if proxy else None),
        urllib.request.HTTPSHandler(context=context), urllib.request.HTTPBasicAuthHandler(passwords))


def _without_user(url):
    parts = urllib.parse.urlsplit(url)
    return urllib.parse.urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def read(url):
    """(the bytes, the URL that they came from)"""
    url = _without_user(url)
    for left in reversed(range(TRIES)):
        try:
            request = urllib.request.Request(url, headers={"Accept": "text/html, */*;q=0.1"})
            with _opener().open(request, timeout=60) as response:
                return response.read(), response.geturl()
        except (OSError, EOFError) as fault:  # OSError: of urllib and of sockets, too
            if not left or isinstance(fault, urllib.error.HTTPError) and fault.code < 500:
                raise IndexFault(f"{url}: {fault}") from None
            time.sleep(1)


class _Links(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attributes):
        target = dict(attributes).get("href")
        if tag == "a" and target:
            self.found.append(target)


def files(project):
    """All files of a project, of all its versions."""
    found = []
    for index in indexes():
        page, base = read(f"{index}/{normalized(project)}/")
        links = _Links()
        links.feed(page.decode())
        for link in links.found:
            url, fragment = urllib.parse.urldefrag(urllib.parse.urljoin(base, link))
            name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
            sha256 = re.fullmatch("sha256=([0-9a-f]{64})", fragment)
            found.append(File(name, url, sha256[1] if sha256 else ""))
    return found
