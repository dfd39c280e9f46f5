"""Images with labels: MNIST, CIFAR-10 and Tiny ImageNet, from a folder, from the cache or from where they live.

They are kept as bytes, (N, channels, height, width); `normalised` makes them numbers of mean 0 and variance 1 in each
channel, by the training images. Batches are functions of the step (`batch`), augmented as in the paper if asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gatelab.data import batches as augmentations
from gatelab.data.archives import (
    Archive,
    Progress,
    Rows,
    cifar_rows,
    content,
    fetched,
    first_file,
    missing,
    places,
    read_idx,
    read_tiny_imagenet,
    tar_members,
)
from gatelab.data.batches import AUGMENTATION, batch_rows, stream
from gatelab.display import one_line
from gatelab.errors import GatelabError, unknown_name

_MNIST_URL = "https://storage.googleapis.com/cvdf-datasets/mnist/"
MNIST = tuple(
    Archive("mnist", file, _MNIST_URL + file, sha256, size)
    for file, sha256, size in (
        ("train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        ("t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    )
)
CIFAR10 = Archive(
    "cifar10",
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170052171,
)
TINY_IMAGENET = Archive(
    "tiny-imagenet",
    "tiny-imagenet-200.zip",
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
    248100043,
)
CIFAR10_ROWS = 10000  # in each of its six files
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


@dataclass(frozen=True, eq=False)
class Images:
    """Bytes (N, channels, height, width) and the number of the class of each."""

    images: Tensor
    labels: Tensor

    def __repr__(self) -> str:
        return one_line(self, f"{len(self)} of shape {tuple(self.images.shape[1:])}")

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class ImageData:
    """Training and test images, the names of their classes, and mean and deviation of each channel, from 0 to 1.

    `augmentation` is what the paper does to the training images, a name of `augment.AUGMENTATIONS`; `description` says
    what was found, and how much of the whole it is.
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
        """The same with its images there: batches are then made there too."""
        parts = {part: Images(v.images.to(device), v.labels.to(device)) for part, v in self._parts().items()}
        return replace(self, **parts)

    def normalised(self, images: Tensor) -> Tensor:
        """Bytes as float32 of mean 0 and variance 1 in each channel."""
        return augmentations.normalised(images, self.mean, self.std)

    def batch(self, step: int, size: int, *, seed: int = 0, augment: bool = False) -> tuple[Tensor, Tensor]:
        """The training batch of that step: images ready for a model, and labels."""
        rows = batch_rows(len(self.train), size, step, seed).to(self.train.images.device)
        images, labels = self.train.images[rows], self.train.labels[rows]
        if not augment:
            return self.normalised(images), labels
        change = augmentations.augmentation(self.augmentation)
        return change(images, self.mean, self.std, stream(seed, AUGMENTATION, step)), labels

    def batches(self, part: str, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All images of "train" or "test" in their order and as they are; the last batch may be smaller."""
        if part not in self._parts():
            raise unknown_name("part", part, self._parts())
        rows = self._parts()[part]
        for images, labels in zip(rows.images.split(size), rows.labels.split(size), strict=True):
            yield self.normalised(images), labels

    def _parts(self) -> dict[str, Images]:
        return {"train": self.train, "test": self.test}


def image_data(name: str, progress: Progress | None = None) -> ImageData:
    """MNIST ("mnist"), CIFAR-10 ("cifar10") or Tiny ImageNet ("tiny-imagenet").

    `progress` is called with the bytes received and the bytes there are while something is downloaded.
    """
    if name not in _LOADERS:
        raise unknown_name("image data set", name, _LOADERS)
    return _LOADERS[name](progress)


def _made(name: str, train: Rows, test: Rows, classes: tuple[str, ...], augmentation: str, of: tuple) -> ImageData:
    for part, (images, labels) in (("training", train), ("test", test)):
        if len(images) != len(labels):
            raise GatelabError(
                f"{name} has {len(images)} {part} images and {len(labels)} labels; copy its files again, all of them"
            )
        if labels.max() >= len(classes):
            raise GatelabError(f"{name} has a label {labels.max()}, but {len(classes)} classes; copy its files again")
    mean, std = _statistics(train[0])
    counts = [f"{len(p[0])} of {n}" if len(p[0]) != n else f"{n}" for p, n in zip((train, test), of, strict=True)]
    description = f"{name}: {counts[0]} training images, {counts[1]} test images, {len(classes)} classes"
    # Arrays over the bytes of a file are read-only, which tensors cannot be.
    parts = [
        Images(torch.from_numpy(np.require(x, requirements=["C", "W"])), torch.from_numpy(y)) for x, y in (train, test)
    ]
    return ImageData(name, parts[0], parts[1], classes, mean, std, augmentation, description)


def _statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel, of bytes over 255; by counting them, which is exact and takes no memory."""
    values = np.arange(256) / 255
    mean, std = [], []
    for channel in range(images.shape[1]):
        parts = (images[i : i + 4096, channel].ravel() for i in range(0, len(images), 4096))
        counts = sum(np.bincount(part, minlength=256) for part in parts)
        share = counts / np.sum(counts)
        mean.append(float(share @ values))
        std.append(float(np.sqrt(share @ (values - mean[-1]) ** 2)))
    if min(std) == 0:
        raise GatelabError("a channel of the images has one value throughout; give images that differ")
    return tuple(mean), tuple(std)


def _mnist(progress: Progress | None) -> ImageData:
    folders = places("mnist")
    arrays = []
    for archive in MNIST:
        if folders is None:
            path = fetched(archive, progress)
        else:
            names = archive.file, archive.file.removesuffix(".gz")
            found = first_file(folders, names)
            if found is None:
                raise missing("mnist", (folder / name for folder in folders for name in names), archive.url)
            path = found
        arrays.append(read_idx(path, 3 if "idx3" in archive.file else 1, archive.url))
    pairs = [(arrays[i][:, None], arrays[i + 1].astype(np.int64)) for i in (0, 2)]
    return _made("mnist", pairs[0], pairs[1], tuple("0123456789"), "none", (60000, 10000))


def _cifar10(progress: Progress | None) -> ImageData:
    """The official archive, or its binary files, plain or gzipped; of these as many as there are."""
    url = CIFAR10.url
    official = [f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"]
    folders = places("cifar10")
    path = fetched(CIFAR10, progress) if folders is None else first_file(folders, [CIFAR10.file])
    parts: list[list[Rows]]
    if path is not None:
        files = tar_members(path, official[0] + official[1], url)
        parts = [[cifar_rows(files[name], path / name, url, CIFAR10_ROWS) for name in names] for names in official]
    else:
        assert folders is not None
        folders = [inner for outer in folders for inner in (outer, outer / "cifar-10-batches-bin")]
        found = [[first_file(folders, (name, name + ".gz")) for name in names] for names in official]
        parts = [[cifar_rows(content(p, url), p, url, CIFAR10_ROWS) for p in paths if p] for paths in found]
        if not parts[1]:
            # A test batch under another name, such as test_batch_first2000.bin.gz, is a part of the official one.
            some = sorted(p for folder in folders for p in folder.glob("test_batch*.bin*"))[:1]
            parts[1] = [cifar_rows(content(p, url), p, url, None) for p in some]
        if not all(parts):
            looked = [f"{folder}/{name}[.gz]" for folder in folders[:1] for name in (*official[0], *official[1])]
            raise missing("cifar10", (folders[0] / CIFAR10.file, *looked), url)
    train, test = ((np.concatenate([x for x, _ in p]), np.concatenate([y for _, y in p])) for p in parts)
    return _made("cifar10", train, test, CIFAR10_CLASSES, "crop-flip-erase", (50000, 10000))


def _tiny_imagenet(progress: Progress | None) -> ImageData:
    """The official zip, or the folder that it unpacks to; its validation images are the test images."""
    url = TINY_IMAGENET.url
    folders = places("tiny-imagenet")
    if folders is None:
        path = fetched(TINY_IMAGENET, progress)
    else:
        inside = [base / name for base in folders for name in ("tiny-imagenet-200", "tiny-imagenet-200.zip")]
        found = next((p for p in (*inside, folders[0]) if p.is_file() or (p / "train").is_dir()), None)
        if found is None:
            raise missing("tiny-imagenet", inside, url)
        path = found
    train, test, classes = read_tiny_imagenet(path, url)
    name = "resized-crop-jitter-flip-erase"
    return _made("tiny-imagenet", train, test, classes, name, (100000, 10000))


_LOADERS: dict[str, Callable[[Progress | None], ImageData]] = {
    "mnist": _mnist,
    "cifar10": _cifar10,
    "tiny-imagenet": _tiny_imagenet,
}
