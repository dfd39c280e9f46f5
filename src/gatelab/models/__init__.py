"""Networks with feed-forward blocks: models with any unit, and changes to the blocks of a given model.

    Mixer("small", "swiglu")   ViT("small", "glu", image_size=64, patch=8, classes=200)   GPT2("gpt2", "swiglu")
    Decoder("11M", "swiglu")                              a modern decoder for language
    transplant(transformers_model, "swiglu")              another unit in its blocks
    replace_activation(transformers_model, polynomial)    another activation, or {layer: activation}
    replace_map(transformers_model, {0: module})          another map for whole blocks, such as `folded` returns

Functions that change a model return a changed copy.
"""

from gatelab.models.decoder import DECODER_SIZES, Decoder, DecoderConfig
from gatelab.models.gpt2 import GPT2, GPT2_SIZES, GPT2Config
from gatelab.models.image_models import MIXER_SIZES, VIT_SIZES, Mixer, MixerConfig, ViT, ViTConfig
from gatelab.models.layouts import blocks
from gatelab.models.replace import folded, replace_activation, replace_map, trace
from gatelab.models.transplants import transplant

__all__ = [
    "DECODER_SIZES",
    "GPT2",
    "GPT2_SIZES",
    "MIXER_SIZES",
    "VIT_SIZES",
    "Decoder",
    "DecoderConfig",
    "GPT2Config",
    "Mixer",
    "MixerConfig",
    "ViT",
    "ViTConfig",
    "blocks",
    "folded",
    "replace_activation",
    "replace_map",
    "trace",
    "transplant",
]
