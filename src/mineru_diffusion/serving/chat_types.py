"""What `/v1/chat/completions` takes: the fields that OpenAI's SDK, vLLM's users and MinerU's client send, checked.

Fields that change nothing here (penalties, `user`, ...) are checked and accepted; fields that ask for something this
server cannot do are refused by name; unknown fields are ignored, as other servers do.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from mineru_diffusion.engine.remote import OWN_PARAMS
from mineru_diffusion.engine.types import Policy

Scalar = str | int | float | bool | None


def _whole(text: str) -> str:
    """JSON can spell half of a surrogate pair, which no tokenizer and no answer can write."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise ValueError("half of a surrogate pair is no text")
    return text


Text = Annotated[str, AfterValidator(_whole)]


class TextPart(BaseModel):
    """A text part of a message."""

    type: Literal["text"]
    text: Text


class ImageUrl(BaseModel):
    """Where an image is: a data URI, or a URL that the server is allowed to fetch. `detail` changes nothing."""

    url: str
    detail: str | None = None


class ImagePart(BaseModel):
    """An image part of a message."""

    type: Literal["image_url"]
    image_url: Annotated[
        ImageUrl,
        BeforeValidator(
            lambda given: {"url": given} if isinstance(given, str) else given, json_schema_input_type=ImageUrl | str
        ),
    ]


Part = Annotated[TextPart | ImagePart, Field(discriminator="type")]


class Message(BaseModel):
    """One turn."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[
        list[Part] | None,
        BeforeValidator(
            lambda given: [{"type": "text", "text": given}] if isinstance(given, str) else given,
            json_schema_input_type=str | list[Part] | None,
        ),
    ] = None

    def texts(self) -> list[str]:
        """All of its texts, in order."""
        return [part.text for part in self.content or () if isinstance(part, TextPart)]

    def image_urls(self) -> list[str]:
        """All of its images, in order."""
        return [part.image_url.url for part in self.content or () if isinstance(part, ImagePart)]


class StreamOptions(BaseModel):
    """How to stream."""

    include_usage: bool = False
    continuous_usage_stats: bool = False


class ResponseFormat(BaseModel):
    """Only plain text is there."""

    type: str = "text"


class ChatRequest(BaseModel):
    """Body of `POST /v1/chat/completions`.

    The fields of `OWN_FIELDS` are this server's own; they may also stand in `vllm_xargs`, for clients that pass extra
    arguments only there.
    """

    model_config = ConfigDict(extra="ignore")

    messages: Annotated[list[Message], Field(min_length=1, max_length=64)]
    model: str | None = None
    temperature: Annotated[float | None, Field(ge=0, le=2)] = None
    top_p: Annotated[float | None, Field(gt=0, le=1)] = None
    top_k: Annotated[int | None, Field(ge=-1)] = None
    min_p: Annotated[float | None, Field(ge=0, le=1)] = None
    presence_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    frequency_penalty: Annotated[float | None, Field(ge=-2, le=2)] = None
    repetition_penalty: Annotated[float | None, Field(gt=0, le=10)] = None
    max_tokens: Annotated[int | None, Field(ge=1)] = None
    max_completion_tokens: Annotated[int | None, Field(ge=1)] = None
    stop: Annotated[
        list[Text] | None,
        Field(max_length=16),
        BeforeValidator(
            lambda given: [given] if isinstance(given, str) else given, json_schema_input_type=str | list[str] | None
        ),
    ] = None
    seed: Annotated[int | None, Field(ge=-(2**63), lt=2**63)] = None
    n: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    skip_special_tokens: bool | None = None
    priority: int | None = None
    vllm_xargs: dict[str, Scalar | list[Scalar]] | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    tools: list[Any] | None = None

    threshold: Annotated[float | None, Field(gt=0, le=1)] = None
    policy: Policy | None = None
    steps: Annotated[int | None, Field(ge=1)] = None
    factor: Annotated[float | None, Field(gt=0)] = None
    gamma: Annotated[float | None, Field(ge=0)] = None
    joint: Annotated[float | None, Field(ge=0, le=1)] = None
    block_length: Annotated[int | None, Field(ge=1)] = None
    repetition_guard: bool | None = None
    as_is: Annotated[
        bool | None, Field(description="Read the image as one piece, whatever unit the checkpoint reads.")
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _unpack_xargs(cls, data: Any) -> Any:
        """Our own fields may come in `vllm_xargs`; a field outside it wins."""
        if isinstance(data, dict) and isinstance(extra := data.get("vllm_xargs"), dict):
            own = {key: extra[key] for key in OWN_FIELDS if key in extra}
            return {**own, **data}
        return data

    @property
    def limit(self) -> int | None:
        """Tokens to generate at most, if the client says."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def stops(self) -> tuple[str, ...]:
        """Texts that end the answer."""
        return tuple(text for text in self.stop or () if text)


OWN_FIELDS = (*OWN_PARAMS, "block_length", "as_is")
"""Extension fields of a chat request."""
