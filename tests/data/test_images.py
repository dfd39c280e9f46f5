"""Images: the real ones, the official layouts in small, where they are looked for, and files that are spoilt."""

from __future__ import annotations

import gzip
import hashlib
import io
import struct
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from gatelab.data import images
from gatelab.data.batches import batch_rows, stream
from gatelab.data.images import CIFAR10, MNIST, TINY_IMAGENET, ImageData, Images, image_data
from gatelab.errors import GatelabError

RNG = np.random.default_rng(0)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that `GATELAB_DATA` names."""
    path = tmp_path / "mine"
    path.mkdir()
    monkeypatch.setenv("GATELAB_DATA", str(path))
    return path


# ---- the real ones


def test_mnist_is_what_it_should_be(real_data, no_network):
    if not (real_data / "mnist").is_dir():
        pytest.skip("needs mnist/ in GATELAB_DATA")
    data = image_data("mnist")
    assert (len(data.train), len(data.test), data.train.images.shape[1:]) == (60000, 10000, (1, 28, 28))
    assert (round(data.mean[0], 4), round(data.std[0], 4)) == (0.1307, 0.3081)
    assert data.train.labels[:8].tolist() == [5, 0, 4, 1, 9, 2, 1, 3]
    assert torch.bincount(data.test.labels).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]
    # What the official files hold when they are unpacked, less their heads of 16 bytes.
    raw = struct.pack(">IIII", 2051, 60000, 28, 28) + data.train.images.numpy().tobytes()
    assert hashlib.sha256(raw).hexdigest() == "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
    assert data.description == "mnist: 60000 training images, 10000 test images, 10 classes"
    x, y = next(data.batches("test", 100))
    assert x.shape == (100, 1, 28, 28) and y.dtype == torch.int64


def test_cifar10_is_what_it_should_be(real_data, no_network):
    if not (real_data / "cifar10" / "data_batch_1.bin.gz").is_file():
        pytest.skip("needs cifar10/data_batch_1.bin.gz in GATELAB_DATA")
    data = image_data("cifar10")
    assert data.description == "cifar10: 10000 of 50000 training images, 2000 of 10000 test images, 10 classes"
    assert data.train.images.shape == (10000, 3, 32, 32)
    names = (real_data / "cifar10" / "batches.meta.txt").read_text().split()
    assert data.classes == tuple(names)
    assert [data.classes[i] for i in data.train.labels[:4]] == ["frog", "truck", "truck", "deer"]
    records = np.c_[data.train.labels.numpy().astype(np.uint8)[:, None], data.train.images.numpy().reshape(10000, -1)]
    assert hashlib.md5(records.tobytes()).hexdigest() == "5dd7e06a14cb22eb9f671a540d1b7c25"
    assert data.train.images[0, :, 0, 0].tolist() == [59, 62, 63]


# ---- MNIST in small


def _idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


DIGITS = [
    RNG.integers(0, 256, (9, 28, 28), dtype=np.uint8),
    np.arange(9, dtype=np.uint8),
    RNG.integers(0, 256, (4, 28, 28), dtype=np.uint8),
    np.arange(4, dtype=np.uint8),
]


def _mnist(folder, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for archive, array in zip(MNIST, DIGITS, strict=True):
        path = folder / (archive.file if packed else archive.file.removesuffix(".gz"))
        path.write_bytes(gzip.compress(_idx(array)) if packed else _idx(array))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("inner", ["mnist", "."])
def test_mnist_from_a_folder(folder, no_network, packed, inner):
    _mnist(folder / inner, packed)
    data = image_data("mnist")
    assert np.array_equal(data.train.images[:, 0], DIGITS[0]) and np.array_equal(data.test.images[:, 0], DIGITS[2])
    assert data.train.labels.tolist() == list(range(9))
    assert data.description.startswith("mnist: 9 of 60000 training images, 4 of 10000 test images")
    assert data.mean[0] == pytest.approx(DIGITS[0].mean() / 255)
    assert data.std[0] == pytest.approx(DIGITS[0].std() / 255)
    x = data.normalized(data.train.images)
    assert abs(float(x.mean())) < 1e-6 and float(x.std(correction=0)) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("which", "spoil", "says"),
    [
        (0, lambda raw: gzip.compress(_idx(DIGITS[0]))[:200], "train-images.*cannot be read.*copy it again from https"),
        (0, lambda raw: gzip.compress(_idx(DIGITS[0])[:-5]), r"\(9, 28, 28\), and 7051 bytes follow"),
        (0, lambda raw: gzip.compress(_idx(DIGITS[1])), "not an idx file of bytes in 3 dimensions"),
        (1, lambda raw: gzip.compress(_idx(DIGITS[1][:8])), "9 training images and 8 labels"),
        (1, lambda raw: gzip.compress(_idx(DIGITS[1] + 3)), "9 labels up to 11 of 10 classes"),
        (0, lambda raw: gzip.compress(_idx(0 * DIGITS[0])), "a channel of the images is constant"),
    ],
)
def test_spoilt_mnist_is_refused(folder, which, spoil, says):
    _mnist(folder / "mnist")
    path = folder / "mnist" / MNIST[which].file
    path.write_bytes(spoil(path.read_bytes()))
    with pytest.raises(GatelabError, match=says):
        image_data("mnist")


# ---- CIFAR-10 in small: files of 30 rows


@pytest.fixture
def small_files(monkeypatch):
    monkeypatch.setattr(images, "CIFAR10_ROWS", 30)


def _cifar(first):
    rows = np.random.default_rng(first).integers(0, 256, (30, 3073), dtype=np.uint8)
    rows[:, 0] %= 10
    return rows


BATCHES = {f"data_batch_{i}.bin": _cifar(i) for i in range(1, 6)} | {"test_batch.bin": _cifar(9)}


def _cifar_archive(batches=BATCHES):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, rows in batches.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = rows.size
            archive.addfile(info, io.BytesIO(rows.tobytes()))
    return out.getvalue()


ARCHIVE = _cifar_archive()


def _are_the_batches(data):
    train = np.concatenate([BATCHES[f"data_batch_{i}.bin"] for i in range(1, 6)])
    assert np.array_equal(data.train.images.reshape(150, -1), train[:, 1:])
    assert np.array_equal(data.train.labels, train[:, 0])
    assert np.array_equal(data.test.images.reshape(30, -1), BATCHES["test_batch.bin"][:, 1:])
    assert data.description == "cifar10: 150 of 50000 training images, 30 of 10000 test images, 10 classes"


@pytest.mark.parametrize("inner", ["cifar10", "cifar10/cifar-10-batches-bin"])
def test_cifar10_from_its_files(folder, small_files, no_network, inner):
    (folder / inner).mkdir(parents=True)
    for i, (name, rows) in enumerate(BATCHES.items()):
        if i % 2:
            (folder / inner / f"{name}.gz").write_bytes(gzip.compress(rows.tobytes()))
        else:
            (folder / inner / name).write_bytes(rows.tobytes())
    _are_the_batches(image_data("cifar10"))


def test_cifar10_takes_what_there_is_and_says_so(folder, small_files):
    rows = BATCHES["test_batch.bin"]
    (folder / "data_batch_3.bin").write_bytes(BATCHES["data_batch_3.bin"].tobytes())
    with pytest.raises(GatelabError, match=r"cifar10 is not in GATELAB_DATA.*test_batch\.bin.*unset GATELAB_DATA"):
        image_data("cifar10")
    (folder / "test_batch_first20.bin").write_bytes(rows[:20].tobytes())
    data = image_data("cifar10")
    assert data.description == "cifar10: 30 of 50000 training images, 20 of 10000 test images, 10 classes"
    assert np.array_equal(data.test.images.reshape(20, -1), rows[:20, 1:])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("data_batch_2.bin", BATCHES["data_batch_2.bin"][:29].tobytes(), "89117 bytes are not 30 records"),
        ("test_batch_x.bin", BATCHES["test_batch.bin"].tobytes()[:5000], "5000 bytes are not whole records of 3073"),
        ("test_batch_x.bin", bytes([77]) + bytes(3072), "labels up to 77 of 10 classes"),
        (CIFAR10.file, ARCHIVE[:50000], "cifar-10-binary.tar.gz cannot be read"),
        (CIFAR10.file, _cifar_archive({}), "cannot be read.*data_batch_1.*copy it again"),
        (TINY_IMAGENET.file, b"PK cut short", r"tiny-imagenet-200\.zip cannot be read.*copy it again from http"),
    ],
    ids=["short", "cut", "label", "archive cut", "archive empty", "zip cut"],
)
def test_spoilt_files_are_refused(folder, small_files, name, content, says):
    (folder / "data_batch_1.bin").write_bytes(BATCHES["data_batch_1.bin"].tobytes())
    (folder / name).write_bytes(content)
    with pytest.raises(GatelabError, match=says):
        image_data("tiny-imagenet" if name == TINY_IMAGENET.file else "cifar10")


# ---- Tiny ImageNet in small


def _jpeg(value, mode="RGB", size=(64, 64)):
    out = io.BytesIO()
    Image.new(mode, size, value).save(out, format="JPEG", quality=95)
    return out.getvalue()


def _tiny_files():
    """Three classes of plain colours, one image grey; validation images in an order of their own."""
    colours = {"n03": (200, 30, 30), "n01": (30, 200, 30), "n02": (30, 30, 200)}
    files = {"wnids.txt": b"n03\nn01\nn02\n", "test/images/test_0.JPEG": _jpeg((0, 0, 0))}
    for wnid, colour in colours.items():
        for i in range(4):
            files[f"train/{wnid}/images/{wnid}_{i}.JPEG"] = _jpeg(tuple(c + i for c in colour))
        files[f"train/{wnid}/{wnid}_boxes.txt"] = b""
    files["train/n02/images/n02_9.JPEG"] = _jpeg(90, "L")
    val = ["n02", "n03", "n01"]
    for i, wnid in enumerate(val):
        files[f"val/images/val_{i}.JPEG"] = _jpeg(colours[wnid])
    lines = [f"val_{i}.JPEG\t{wnid}\t0\t0\t62\t62\n" for i, wnid in enumerate(val)]
    files["val/val_annotations.txt"] = "".join(reversed(lines)).encode()
    return files


def _write(root, files):
    for name, content in files.items():
        path = root / "tiny-imagenet-200" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def _zipped(files):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, content in files.items():
            archive.writestr(f"tiny-imagenet-200/{name}", content)
    return out.getvalue()


def _is_tiny(data):
    assert data.classes == ("n01", "n02", "n03")
    assert data.train.images.shape == (13, 3, 64, 64) and data.test.images.shape == (3, 3, 64, 64)
    assert data.train.labels.tolist() == [0] * 4 + [1] * 5 + [2] * 4
    assert data.test.labels.tolist() == [1, 2, 0]
    # The strongest colour is that of the class: red of n03, green of n01, blue of n02.
    for part in (data.train, data.test):
        strongest = part.images.double().mean((2, 3)).argmax(1)
        for label, channel, image in zip(part.labels, strongest, part.images, strict=True):
            grey = bool((image == image[0]).all())
            assert grey or [1, 2, 0][label] == channel
    assert (data.train.images[8] == 90).all()
    assert data.augmentation == "resized-crop-jitter-flip-erase"
    assert data.description == "tiny-imagenet: 13 of 100000 training images, 3 of 10000 test images, 3 classes"


@pytest.mark.parametrize("inner", ["tiny-imagenet", "."])
def test_tiny_imagenet_from_its_folder(folder, no_network, inner):
    _write(folder / inner, _tiny_files())
    data = image_data("tiny-imagenet")
    _is_tiny(data)
    x, y = data.batch(0, 5, augment=True)
    assert x.shape == (5, 3, 64, 64) and torch.isfinite(x).all() and y.max() < 3


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("train/n01/images/n01_2.JPEG", _jpeg((1, 2, 3))[:300], r"n01_2\.JPEG cannot be read.*copy it again"),
        ("train/n01/images/n01_2.JPEG", _jpeg(0, "L", (32, 64)), r"n01_2.*shape \(3, 64, 32\), others"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn02\n", r"gives val_1\.JPEG no class"),
        ("val/val_annotations.txt", b"val_0.JPEG\tn99\n", r"gives val_\d\.JPEG no class"),
        ("val/val_annotations.txt", None, r"lacks .*val/val_annotations\.txt"),
    ],
)
@pytest.mark.parametrize("packed", [True, False])
def test_spoilt_tiny_imagenet_is_refused(folder, packed, name, content, says):
    files = _tiny_files() | {name: content}
    files = {n: c for n, c in files.items() if c is not None}
    if packed:
        (folder / TINY_IMAGENET.file).write_bytes(_zipped(files))
    else:
        _write(folder, files)
    with pytest.raises(GatelabError, match=says):
        image_data("tiny-imagenet")


# ---- where they are looked for


@pytest.mark.parametrize("name", ["mnist", "cifar10", "tiny-imagenet"])
def test_a_folder_without_them_is_an_error_and_no_download(folder, no_network, name):
    with pytest.raises(GatelabError, match=f"{name} is not in GATELAB_DATA, .*unset GATELAB_DATA"):
        image_data(name)


def _served(server, monkeypatch):
    """MNIST's four files and the two archives on a server of our own."""
    small = []
    for archive, array in zip(MNIST, DIGITS, strict=True):
        content = gzip.compress(_idx(array))
        url, digest = server.url(archive.file, content), hashlib.sha256(content).hexdigest()
        small.append(replace(archive, url=url, sha256=digest))
    monkeypatch.setattr(images, "MNIST", tuple(small))
    for name, content in (("CIFAR10", ARCHIVE), ("TINY_IMAGENET", _zipped(_tiny_files()))):
        archive = getattr(images, name)
        url, digest = server.url(archive.file, content), hashlib.sha256(content).hexdigest()
        monkeypatch.setattr(images, name, replace(archive, url=url, sha256=digest))


def test_downloaded_once_and_kept_and_a_spoilt_cache_again(tmp_path, small_files, server, monkeypatch):
    _served(server, monkeypatch)
    path = tmp_path / "cache" / "mnist" / MNIST[0].file
    path.parent.mkdir(parents=True)
    path.write_bytes(b"half")
    seen = []
    for _ in range(2):
        assert len(image_data("mnist", lambda done, size: seen.append((done, size))).train) == 9
        _are_the_batches(image_data("cifar10"))
        _is_tiny(image_data("tiny-imagenet"))
    assert len(server.asked) == 6
    assert len({size for _, size in seen}) == 4 and all(done == size for done, size in seen)
    assert (tmp_path / "cache" / "cifar10" / CIFAR10.file).read_bytes() == ARCHIVE


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda s: setattr(s, "cut", 100), "IncompleteRead"),
        (lambda s: s.files.update({k: v[::-1] for k, v in s.files.items()}), "does not match the known hash"),
        (lambda s: s.files.clear(), "cannot be downloaded from http.*404"),
    ],
    ids=["cut", "altered", "404"],
)
def test_a_bad_download_is_refused_and_not_kept(tmp_path, server, monkeypatch, spoil, says):
    _served(server, monkeypatch)
    spoil(server)
    for name in ("mnist", "tiny-imagenet"):
        with pytest.raises(GatelabError, match=says) as caught:
            image_data(name)
        assert "set GATELAB_DATA" in str(caught.value)
    assert not list((tmp_path / "cache").rglob("*.*"))


# ---- batches


def _data(n=23):
    x = torch.arange(n, dtype=torch.uint8).reshape(n, 1, 1, 1).expand(n, 3, 8, 8).contiguous()
    rows = Images(x, torch.arange(n) % 10)
    return ImageData("small", rows, rows, tuple("0123456789"), (0.1, 0.2, 0.3), (0.5, 0.5, 0.5), "crop-flip-erase")


def test_an_epoch_has_every_row_at_most_once_and_batches_are_functions_of_the_step():
    epoch = [batch_rows(23, 5, step, seed=3) for step in range(4)]
    assert len(torch.cat(epoch).unique()) == 20
    assert torch.equal(batch_rows(23, 5, 2, seed=3), epoch[2])  # after any others
    assert not torch.equal(batch_rows(23, 5, 0, seed=4), epoch[0])
    assert not torch.equal(batch_rows(23, 5, 4, seed=3), epoch[0])
    everything = torch.cat([batch_rows(23, 5, step, seed=3) for step in range(40)])
    assert len(everything.unique()) == 23
    for size in (0, 24, 2.5, True):
        with pytest.raises(GatelabError, match="the batch size is"):
            batch_rows(23, size, 0, seed=0)
    with pytest.raises(GatelabError, match="seed or step is -1"):
        stream(-1)


def test_batches_of_images():
    data = _data()
    state = torch.get_rng_state()
    x, y = data.batch(2, 5, seed=3)
    rows = batch_rows(23, 5, 2, seed=3)
    assert torch.equal(y, rows % 10) and torch.equal(x, data.normalized(data.train.images[rows]))
    changed, again = (data.batch(2, 5, seed=3, augment=True)[0] for _ in range(2))
    assert torch.equal(changed, again) and not torch.equal(changed, x)
    assert torch.equal(torch.get_rng_state(), state)
    whole = list(data.batches("test", 10))
    assert [len(y) for _, y in whole] == [10, 10, 3]
    assert torch.equal(torch.cat([x for x, _ in whole]), data.normalized(data.test.images))
    with pytest.raises(GatelabError, match="no part is called 'tests'"):
        list(data.batches("tests", 10))
    assert data.to("cpu").train.images.device.type == "cpu"
