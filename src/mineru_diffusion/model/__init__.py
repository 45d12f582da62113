"""The network in Hugging Face form. Importing this package registers it with the Auto classes, so that
`AutoModel.from_pretrained(folder)` needs no `trust_remote_code`."""

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoProcessor

from mineru_diffusion.model.attention import AttentionContext, MaskedAttention
from mineru_diffusion.model.configuration import MinerUDiffusionConfig, MinerUDiffusionVisionConfig, SDARTextConfig
from mineru_diffusion.model.generation import BlockDiffusionGenerationConfig, BlockDiffusionOutput
from mineru_diffusion.model.modeling import MinerUDiffusionForConditionalGeneration, MinerUDiffusionOutput
from mineru_diffusion.model.processing import MinerUDiffusionProcessor

AutoConfig.register("mineru_diffusion", MinerUDiffusionConfig, exist_ok=True)
AutoConfig.register("sdar", SDARTextConfig, exist_ok=True)
AutoModel.register(MinerUDiffusionConfig, MinerUDiffusionForConditionalGeneration, exist_ok=True)
AutoModelForCausalLM.register(MinerUDiffusionConfig, MinerUDiffusionForConditionalGeneration, exist_ok=True)
AutoProcessor.register(MinerUDiffusionConfig, MinerUDiffusionProcessor, exist_ok=True)

__all__ = [
    "AttentionContext",
    "BlockDiffusionGenerationConfig",
    "BlockDiffusionOutput",
    "MaskedAttention",
    "MinerUDiffusionConfig",
    "MinerUDiffusionForConditionalGeneration",
    "MinerUDiffusionOutput",
    "MinerUDiffusionProcessor",
    "MinerUDiffusionVisionConfig",
    "SDARTextConfig",
]
