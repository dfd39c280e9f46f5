"""The second text of docs/results/ladder-design.md: 50 million bytes of Python sources of named packages.

    python benchmarks/python_text.py carry/text/python.gz

Source distributions are read from the package registry. Files are taken once per content and sorted by the SHA-256 of
it: packages are mixed, so that training, tuning and test text are of one kind.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import tarfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import urlopen

import typer

INDEX = "https://pypi.org/simple"
PACKAGES = (
    "aiohttp==3.10.10", "celery==5.4.0", "dask==2024.10.0", "Django==5.1.2", "matplotlib==3.9.2", "networkx==3.4.1",
    "numpy==2.1.2", "pandas==2.2.3", "scikit-learn==1.5.2", "Sphinx==8.1.3", "SQLAlchemy==2.0.36", "Twisted==24.10.0",
)  # fmt: skip
BYTES = 50_000_000
LARGEST = 200_000  # bytes of a file: longer ones are mostly tables
SHA256 = "5813d57a7eb8120d4b945e9497b019e539cadcee4d2594d8c5f3a09dcdf0eb65"


def archive(package: str) -> bytes:
    """The source distribution of a package, with the sum that the index has for it."""
    name, version = package.split("==")
    with urlopen(f"{INDEX}/{name.lower()}/", timeout=180) as page:
        links = re.findall(r'href="([^"#]+)#sha256=([0-9a-f]{64})"', page.read().decode())
    wanted = re.compile(rf"{re.escape(name)}-{re.escape(version)}\.tar\.gz".replace(r"\-", "[-_]"), re.IGNORECASE)
    for link, expected in links:
        if wanted.fullmatch(link.rpartition("/")[2]):
            with urlopen(link, timeout=600) as response:
                content = response.read()
            if hashlib.sha256(content).hexdigest() != expected:
                raise SystemExit(f"{link} has another SHA-256 than the index says; run this again")
            return content
    raise SystemExit(f"{INDEX} has no source distribution of {package}; name another version")


def sources(content: bytes) -> Iterator[bytes]:
    """The Python files of a source distribution that are UTF-8 and not too long."""
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:gz") as files:
        for member in files:
            if member.isfile() and member.name.endswith(".py") and 0 < member.size <= LARGEST:
                source = files.extractfile(member).read().replace(b"\r", b"")
                if source.isascii() or source == source.decode(errors="replace").encode():
                    yield source.rstrip(b"\n") + b"\n\n"


def joined(archives: list[bytes]) -> bytes:
    """The first bytes of all files, each content once, in the order of their sums."""
    by_sum = {hashlib.sha256(source).digest(): source for content in archives for source in sources(content)}
    text = b"".join(by_sum[key] for key in sorted(by_sum))
    print(f"{len(by_sum)} files, {len(text)} bytes")
    return text[:BYTES]


def main(out: Path) -> None:
    """Write the text to OUT, gzipped."""
    with ThreadPoolExecutor(4) as pool:
        text = joined(list(pool.map(archive, PACKAGES)))
    found = hashlib.sha256(text).hexdigest()
    print(f"{len(text)} bytes, SHA-256 {found}")
    if found != SHA256:
        raise SystemExit(f"the text has not the SHA-256 {SHA256}; the index or the list of packages has changed")
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_bytes(gzip.compress(text, 9, mtime=0))


if __name__ == "__main__":
    typer.run(main)
