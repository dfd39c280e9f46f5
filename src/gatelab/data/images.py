"""Images with labels: MNIST, CIFAR-10 and Tiny ImageNet, from a folder, the cache or a download.

They are kept as bytes, (N, channels, height, width). Batches are functions of the step (`batch`).
"""

from __future__ import annotations

import io
import os
import re
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gatelab.arrays import Bytes
from gatelab.data import batches as augmentations
from gatelab.data.archives import Progress, content, damage_error, download, first_file, locate, missing, places
from gatelab.data.batches import AUGMENTATION, batch_rows, stream
from gatelab.data.specification import Archive
from gatelab.display import Compact, one_line
from gatelab.errors import GatelabError, unknown_name
from gatelab.interrupts import on_threads

Rows = tuple[Bytes, NDArray[np.int64]]
_MNIST_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
MNIST = tuple(
    Archive("mnist", f"{file}.gz", f"{_MNIST_URL}{file}.gz", sha256, others=(file,))
    for file, sha256 in (
        ("train-images-idx3-ubyte", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        ("train-labels-idx1-ubyte", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        ("t10k-images-idx3-ubyte", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        ("t10k-labels-idx1-ubyte", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    )
)
CIFAR10 = Archive(
    "cifar10",
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
TINY_IMAGENET = Archive(
    "tiny-imagenet",
    "tiny-imagenet-200.zip",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
)
CIFAR10_ROWS = 10000  # in each of its six files
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
CIFAR10_FILES = [f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"]
RECORD = 1 + 3 * 32 * 32
TRAIN_IMAGE = re.compile(r"(?:.*/)?train/([^/]+)/images/[^/]+\.JPEG", re.IGNORECASE)
VAL_IMAGE = re.compile(r"(?:.*/)?val/images/([^/]+\.JPEG)", re.IGNORECASE)


@dataclass(frozen=True, eq=False)
class Images(Compact):
    """Images as bytes (N, channels, height, width), and the numbers of their classes (N,)."""

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class ImageData:
    """Training and test images.

    Attributes:
        name: the name of the data set.
        train: the training images.
        test: the test images.
        classes: the names of the classes.
        mean: the mean of each channel of the training images, from 0 to 1.
        std: the standard deviation of each channel.
        augmentation: the paper's augmentation of the training images, a name of `batches.AUGMENTATIONS`.
        description: the numbers of images and classes.
    """

    name: str
    train: Images
    test: Images
    classes: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: str = "none"
    description: str = ""

    def __repr__(self) -> str:
        return one_line(
            self,
            f"{self.name}: {len(self.train)} training and {len(self.test)} test images, {len(self.classes)} classes",
        )

    def to(self, device: str | torch.device) -> ImageData:
        """The data on a device, where batches are then made too."""
        train, test = (Images(part.images.to(device), part.labels.to(device)) for part in (self.train, self.test))
        return replace(self, train=train, test=test)

    def normalized(self, images: Tensor) -> Tensor:
        """Bytes as float32 of mean 0 and variance 1 in each channel."""
        return augmentations.normalized(images, self.mean, self.std)

    def batch(self, step: int, size: int, *, seed: int = 0, augment: bool = False) -> tuple[Tensor, Tensor]:
        """The training batch of that step: normalized images and labels."""
        rows = batch_rows(len(self.train), size, step, seed).to(self.train.images.device)
        images, labels = self.train.images[rows], self.train.labels[rows]
        if not augment:
            return self.normalized(images), labels
        change = augmentations.augmentation(self.augmentation)
        return change(images, self.mean, self.std, stream(seed, AUGMENTATION, step)), labels

    def batches(self, part: str, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images of "train" or "test" in order, without augmentation; the last batch may be smaller."""
        if part not in ("train", "test"):
            raise unknown_name("part", part, ("train", "test"))
        rows: Images = getattr(self, part)
        for images, labels in zip(rows.images.split(size), rows.labels.split(size), strict=True):
            yield self.normalized(images), labels


def image_data(name: str, progress: Progress | None = None) -> ImageData:
    """Images with labels, from `GATELAB_DATA`, from the cache or downloaded.

    Args:
        name: "mnist", "cifar10" or "tiny-imagenet".
        progress: called with the received and total bytes during a download.

    Returns:
        An `ImageData` with training and test images.
    """
    if name not in LOADERS:
        raise unknown_name("image data set", name, LOADERS)
    return LOADERS[name](progress)


def load_mnist(progress: Progress | None) -> ImageData:
    paths = [locate(archive, "mnist", progress) for archive in MNIST]
    x, y, x_test, y_test = (read_idx(p, d, a.url) for p, d, a in zip(paths, (3, 1, 3, 1), MNIST, strict=True))
    train, test = (x[:, None], y.astype(np.int64)), (x_test[:, None], y_test.astype(np.int64))
    return labeled("mnist", train, test, tuple("0123456789"), "none", counts=(60000, 10000))


def load_cifar10(progress: Progress | None) -> ImageData:
    """CIFAR-10 from the official archive, or from those of its binary files that exist, plain or gzipped."""
    folders = places("cifar10")
    path = first_file(folders, [CIFAR10.file]) if folders else download(CIFAR10, "cifar10", progress)
    if path is not None:
        files = tar_members(path, [name for names in CIFAR10_FILES for name in names], CIFAR10.url)
        parts = [[cifar_rows(files[name], path / name, CIFAR10_ROWS) for name in names] for names in CIFAR10_FILES]
    else:
        parts = cifar_parts([inner for outer in folders for inner in (outer, outer / "cifar-10-batches-bin")])
    train, test = ((np.concatenate([x for x, _ in p]), np.concatenate([y for _, y in p])) for p in parts)
    return labeled("cifar10", train, test, CIFAR10_CLASSES, "crop-flip-erase", counts=(50000, 10000))


def cifar_parts(folders: Sequence[Path]) -> list[list[Rows]]:
    url = CIFAR10.url
    paths = [[first_file(folders, (name, name + ".gz")) for name in names] for names in CIFAR10_FILES]
    parts = [[cifar_rows(content(p, url), p, CIFAR10_ROWS) for p in some if p] for some in paths]
    if not parts[1]:
        # A test batch with another name, such as test_batch_first2000.bin.gz, is a part of the official one.
        some = sorted(p for folder in folders for p in folder.glob("test_batch*.bin*"))[:1]
        parts[1] = [cifar_rows(content(p, url), p, None) for p in some]
    if not all(parts):
        looked = [f"{folders[0]}/{name}[.gz]" for names in CIFAR10_FILES for name in names]
        raise missing("cifar10", (folders[0] / CIFAR10.file, *looked), url)
    return parts


def load_tiny_imagenet(progress: Progress | None) -> ImageData:
    """Tiny ImageNet from the official zip or its unpacked folder; its validation images are the test images."""
    folders = places("tiny-imagenet")
    if folders:
        inside = [base / name for base in folders for name in ("tiny-imagenet-200", TINY_IMAGENET.file)]
        path = next((p for p in (*inside, folders[0]) if p.is_file() or (p / "train").is_dir()), None)
        if path is None:
            raise missing("tiny-imagenet", inside, TINY_IMAGENET.url)
    else:
        path = download(TINY_IMAGENET, "tiny-imagenet", progress)
    train, test, classes = read_tiny_imagenet(path)
    return labeled("tiny-imagenet", train, test, classes, "resized-crop-jitter-flip-erase", counts=(100000, 10000))


LOADERS = {"mnist": load_mnist, "cifar10": load_cifar10, "tiny-imagenet": load_tiny_imagenet}


def labeled(
    name: str, train: Rows, test: Rows, classes: tuple[str, ...], augmentation: str, *, counts: tuple[int, int]
) -> ImageData:
    """The data of images and labels; `counts` are the numbers of images in the complete data set."""
    described, parts = [], []
    for part, (images, labels), count in (("training", train, counts[0]), ("test", test, counts[1])):
        if len(images) != len(labels) or labels.max() >= len(classes):
            raise GatelabError(
                f"{name} has {len(images)} {part} images and {len(labels)} labels up to {labels.max()} of"
                f" {len(classes)} classes; copy its files again, all of them"
            )
        share = f"{len(images)} of " * (len(images) != count)
        described.append(f"{share}{count} {part} images")
        # Arrays over the bytes of a file are read-only, but tensors must be writable.
        writable = np.require(images, requirements=["C", "W"])
        parts.append(Images(torch.from_numpy(writable), torch.from_numpy(labels)))
    description = f"{name}: {', '.join(described)}, {len(classes)} classes"
    mean, std = channel_statistics(train[0])
    return ImageData(name, parts[0], parts[1], classes, mean, std, augmentation, description=description)


def channel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of bytes over 255, exactly from a histogram."""
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[1]):
        parts = (images[i : i + 4096, channel].ravel() for i in range(0, len(images), 4096))
        counts = sum(np.bincount(part, minlength=256) for part in parts)
        share = counts / np.sum(counts)
        mean.append(float(share @ values))
        std.append(float(np.sqrt(share @ (values - mean[-1]) ** 2)))
    if min(std) == 0:
        raise GatelabError("a channel of the images is constant; give images that differ")
    return tuple(mean), tuple(std)


# ---- formats


def read_idx(path: Path, dimensions: int, url: str) -> Bytes:
    """An idx file of bytes: two zeros, the type 8, the number of dimensions, each as four bytes, then the values."""
    raw = content(path, url)
    head = 4 + 4 * dimensions
    if len(raw) < head or raw[:4] != bytes([0, 0, 8, dimensions]):
        raise damage_error(path, f"it is not an idx file of bytes in {dimensions} dimensions", url)
    shape = struct.unpack(f">{dimensions}I", raw[4:head])
    if len(raw) - head != int(np.prod(shape, dtype=np.int64)):
        raise damage_error(path, f"its header gives the shape {shape}, and {len(raw) - head} bytes follow", url)
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)


def cifar_rows(raw: bytes, path: Path, rows: int | None) -> Rows:
    """Rows in CIFAR-10's binary layout: a byte for the label, then the red, green and blue planes of 32 x 32."""
    if not raw or len(raw) % RECORD or (rows and len(raw) != rows * RECORD):
        raise damage_error(path, f"{len(raw)} bytes are not {rows or 'whole'} records of {RECORD}", CIFAR10.url)
    records = np.frombuffer(raw, np.uint8).reshape(-1, RECORD)
    return records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0].astype(np.int64)


def tar_members(path: Path, names: Sequence[str], url: str) -> dict[str, bytes]:
    try:
        with tarfile.open(path, mode="r:gz") as archive:
            members = {member.name.rpartition("/")[2]: member for member in archive.getmembers() if member.isfile()}
            return {name: file.read() for name in names if (file := archive.extractfile(members[name])) is not None}
    except (OSError, EOFError, zlib.error, tarfile.TarError, KeyError) as error:
        raise damage_error(path, error, url) from error


def read_tiny_imagenet(path: Path) -> tuple[Rows, Rows, tuple[str, ...]]:
    """Training and validation images of Tiny ImageNet, from its folder or its zip, and the names of its classes."""
    try:
        if path.is_dir():
            tree = {f.relative_to(path).as_posix(): f.read_bytes for f in path.rglob("*") if f.is_file()}
        else:
            archive = zipfile.ZipFile(path)
            tree = {name: partial(archive.read, name) for name in archive.namelist()}
        train = {name: match[1] for name in sorted(tree) if (match := TRAIN_IMAGE.fullmatch(name))}
        val = {match[1]: name for name in sorted(tree) if (match := VAL_IMAGE.fullmatch(name))}
        notes = next((name for name in tree if name.endswith("val/val_annotations.txt")), None)
        if not train or not val or notes is None:
            raise ValueError("it lacks train/<class>/images/*.JPEG, val/images/*.JPEG or val/val_annotations.txt")
        lines = [line.split("\t") for line in tree[notes]().decode().splitlines()]
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError) as error:
        raise damage_error(path, error, TINY_IMAGENET.url) from error
    classes = tuple(sorted(set(train.values())))
    number = {name: i for i, name in enumerate(classes)}
    labels = {line[0]: number.get(line[1]) for line in lines if len(line) > 1}
    unlabeled = [file for file in val if labels.get(file) is None]
    if unlabeled:
        why = f"val_annotations.txt gives {unlabeled[0]} no class that is in train"
        raise damage_error(path, why, TINY_IMAGENET.url)
    images = decoded_images([*train, *val.values()], tree, path)
    y_train = np.array([number[wnid] for wnid in train.values()])
    return (images[: len(train)], y_train), (images[len(train) :], np.array([labels[f] for f in val])), classes


def decoded_images(names: Sequence[str], tree: Mapping[str, Callable[[], bytes]], path: Path) -> Bytes:
    """The images of these names as (N, 3, H, W), decoded on threads."""
    from PIL import Image  # installed with matplotlib, and needed here only

    def decoded(name: str) -> Bytes:
        try:
            with Image.open(io.BytesIO(tree[name]())) as image:
                return np.asarray(image.convert("RGB")).transpose(2, 0, 1)  # some are gray
        except (OSError, SyntaxError, zlib.error, zipfile.BadZipFile) as error:
            raise damage_error(path / name, error, TINY_IMAGENET.url) from error

    first = decoded(names[0])
    images = np.empty((len(names), *first.shape), np.uint8)

    def place_many(start: int) -> None:
        for i in range(start, min(start + 64, len(names))):
            image = decoded(names[i])
            if image.shape != first.shape:
                why = f"it has the shape {image.shape}, others {first.shape}"
                raise damage_error(path / names[i], why, TINY_IMAGENET.url)
            images[i] = image

    for _ in on_threads(place_many, range(0, len(names), 64), threads=os.cpu_count() or 1):
        pass
    return images
