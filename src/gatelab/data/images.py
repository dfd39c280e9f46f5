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
    """Images and the class of each.

    Attributes:
        images: bytes (N, channels, height, width).
        labels: the numbers of their classes, (N,).
    """

    images: Tensor
    labels: Tensor

    def __repr__(self) -> str:
        return one_line(self, f"{len(self)} of shape {tuple(self.images.shape[1:])}")

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True, eq=False)
class ImageData:
    """Training and test images.

    Attributes:
        name: that of the data set.
        train: the training images.
        test: the test images.
        classes: the names of the classes.
        mean: the mean of each channel of the training images, from 0 to 1.
        std: the deviation of each channel, likewise.
        augmentation: what the paper does to the training images, a name of `batches.AUGMENTATIONS`.
        description: what was read, and how much of the whole it is.
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
        parts = {part: Images(v.images.to(device), v.labels.to(device)) for part, v in self.parts.items()}
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
        if part not in self.parts:
            raise unknown_name("part", part, self.parts)
        rows = self.parts[part]
        for images, labels in zip(rows.images.split(size), rows.labels.split(size), strict=True):
            yield self.normalised(images), labels

    @property
    def parts(self) -> dict[str, Images]:
        """Training and test images by the names that `batches` takes."""
        return {"train": self.train, "test": self.test}


def image_data(name: str, progress: Progress | None = None) -> ImageData:
    """Images with labels, from `GATELAB_DATA`, from the cache or downloaded.

    Args:
        name: "mnist", "cifar10" or "tiny-imagenet".
        progress: called with the bytes received and the bytes there are while something is downloaded.

    Returns:
        An `ImageData` with training and test images.
    """
    if name not in LOADERS:
        raise unknown_name("image data set", name, LOADERS)
    return LOADERS[name](progress)


def load_mnist(progress: Progress | None) -> ImageData:
    """MNIST from its four idx files, gzipped or not."""
    folders = places("mnist")
    arrays = []
    for archive in MNIST:
        if folders is None:
            path = fetched(archive, progress)
        else:
            names = archive.file, archive.file.removesuffix(".gz")
            path = first_file(folders, names)
            if path is None:
                raise missing("mnist", (folder / name for folder in folders for name in names), archive.url)
        arrays.append(read_idx(path, 3 if "idx3" in archive.file else 1, archive.url))
    train, test = ((arrays[i][:, None], arrays[i + 1].astype(np.int64)) for i in (0, 2))
    return labelled("mnist", train, test, classes=tuple("0123456789"), augmentation="none", counts=(60000, 10000))


def load_cifar10(progress: Progress | None) -> ImageData:
    """The official archive, or its binary files, plain or gzipped; of these as many as there are."""
    url = CIFAR10.url
    official = [f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"]
    folders = places("cifar10") or []
    if folders:
        path = first_file(folders, [CIFAR10.file])
    else:
        path = fetched(CIFAR10, progress)
    parts: list[list[Rows]]
    if path is not None:
        files = tar_members(path, official[0] + official[1], url)
        parts = [[cifar_rows(files[name], path / name, url, CIFAR10_ROWS) for name in names] for names in official]
    else:
        folders = [inner for outer in folders for inner in (outer, outer / "cifar-10-batches-bin")]
        batches = [[first_file(folders, (name, name + ".gz")) for name in names] for names in official]
        parts = [[cifar_rows(content(p, url), p, url, CIFAR10_ROWS) for p in paths if p] for paths in batches]
        if not parts[1]:
            # A test batch under another name, such as test_batch_first2000.bin.gz, is a part of the official one.
            some = sorted(p for folder in folders for p in folder.glob("test_batch*.bin*"))[:1]
            parts[1] = [cifar_rows(content(p, url), p, url, None) for p in some]
        if not all(parts):
            looked = [f"{folder}/{name}[.gz]" for folder in folders[:1] for name in (*official[0], *official[1])]
            raise missing("cifar10", (folders[0] / CIFAR10.file, *looked), url)
    train, test = ((np.concatenate([x for x, _ in p]), np.concatenate([y for _, y in p])) for p in parts)
    return labelled(
        "cifar10", train, test, classes=CIFAR10_CLASSES, augmentation="crop-flip-erase", counts=(50000, 10000)
    )


def load_tiny_imagenet(progress: Progress | None) -> ImageData:
    """The official zip, or the folder that it unpacks to; its validation images are the test images."""
    url = TINY_IMAGENET.url
    folders = places("tiny-imagenet")
    if folders is None:
        path = fetched(TINY_IMAGENET, progress)
    else:
        inside = [base / name for base in folders for name in ("tiny-imagenet-200", "tiny-imagenet-200.zip")]
        path = next((p for p in (*inside, folders[0]) if p.is_file() or (p / "train").is_dir()), None)
        if path is None:
            raise missing("tiny-imagenet", inside, url)
    train, test, classes = read_tiny_imagenet(path, url)
    return labelled(
        "tiny-imagenet",
        train,
        test,
        classes=classes,
        augmentation="resized-crop-jitter-flip-erase",
        counts=(100000, 10000),
    )


LOADERS: dict[str, Callable[[Progress | None], ImageData]] = {
    "mnist": load_mnist,
    "cifar10": load_cifar10,
    "tiny-imagenet": load_tiny_imagenet,
}


def labelled(
    name: str, train: Rows, test: Rows, *, classes: tuple[str, ...], augmentation: str, counts: tuple[int, int]
) -> ImageData:
    """The data of images and labels that were read; `counts` says how many of each part the whole has."""
    described, parts = [], []
    for part, (images, labels), count in (("training", train, counts[0]), ("test", test, counts[1])):
        if len(images) != len(labels):
            raise GatelabError(
                f"{name} has {len(images)} {part} images and {len(labels)} labels; copy its files again, all of them"
            )
        if labels.max() >= len(classes):
            raise GatelabError(f"{name} has a label {labels.max()}, but {len(classes)} classes; copy its files again")
        share = f"{len(images)} of " * (len(images) != count)
        described.append(f"{share}{count} {part} images")
        # Arrays over the bytes of a file are read-only, which tensors cannot be.
        writable = np.require(images, requirements=["C", "W"])
        parts.append(Images(torch.from_numpy(writable), torch.from_numpy(labels)))
    mean, std = channel_statistics(train[0])
    return ImageData(
        name,
        train=parts[0],
        test=parts[1],
        classes=classes,
        mean=mean,
        std=std,
        augmentation=augmentation,
        description=f"{name}: {', '.join(described)}, {len(classes)} classes",
    )


def channel_statistics(images: np.ndarray) -> tuple[tuple[float, ...], tuple[float, ...]]:
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
