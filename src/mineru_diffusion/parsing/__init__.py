"""From documents to structured text: layout, crops, engine, and back. Torch is loaded only with an engine."""

from mineru_diffusion.parsing.api import parse, parse_many
from mineru_diffusion.parsing.options import ParseOptions, decoding_params
from mineru_diffusion.parsing.pipeline import Outcome, Pipeline
from mineru_diffusion.parsing.progress import Counters, Progress

__all__ = ["Counters", "Outcome", "ParseOptions", "Pipeline", "Progress", "decoding_params", "parse", "parse_many"]
