"""Networks that hold feed-forward blocks: models with any unit in them, a unit transplanted into a given model.

    Mixer("small", "swiglu")   ViT("small", "glu", image_size=64, patch=8, classes=200)   GPT2("gpt2", "swiglu")
transplant(transformers_model, "swiglu")
"""

from gatelab.models.gpt2 import GPT2, GPT2_SIZES, GPT2Config
from gatelab.models.mixer import MIXER_SIZES, Mixer, MixerConfig
from gatelab.models.transplant import transplant
from gatelab.models.vit import VIT_SIZES, ViT, ViTConfig

__all__ = [
    "GPT2",
    "GPT2_SIZES",
    "MIXER_SIZES",
    "VIT_SIZES",
    "GPT2Config",
    "Mixer",
    "MixerConfig",
    "ViT",
    "ViTConfig",
    "transplant",
]
