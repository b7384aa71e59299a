"""Settings of AI companions."""

from __future__ import annotations

from pydantic import Field, SecretStr

from chatserver.config.section import Section
from chatserver.config.urls import HttpUrl


class Companions(Section):
    """AI companion responses."""

    responses_per_user_max: int = Field(
        3, ge=1, le=100, description="Maximum concurrent responses per user"
    )
    responses_max: int = Field(
        256, ge=1, le=4096, description="Maximum concurrent responses per worker"
    )
    tokens_per_day: int = Field(
        200_000, ge=1, description="Maximum model tokens per user and UTC day, including prompts"
    )
    openai_url: HttpUrl = Field(
        "https://api.openai.com/v1",
        description="URL of the OpenAI API or a compatible API, such as vLLM or Ollama",
    )
    openai_key: SecretStr = Field(SecretStr(""), description="API key for `openai_url`")
    bedrock_region: str = Field(
        "us-east-1",
        description="AWS region for Amazon Bedrock; credentials are taken from the AWS "
        "credential chain",
    )
