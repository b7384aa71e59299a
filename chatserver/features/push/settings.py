"""Settings of push notifications."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from chatserver.config.section import Section
from chatserver.config.urls import HttpUrl


class Notify(Section):
    """Push notifications. Disabled without a VAPID, FCM or APNs key."""

    delay_s: float = Field(
        3.0, ge=0, le=300, description="A message that is read within this time is not pushed"
    )
    preview: bool = Field(True, description="Include the beginning of the message in pushes")
    large: Literal["mentions", "none"] = Field(
        "mentions",
        description="Which members of a large chat get pushes: mentioned members, or none",
    )
    vapid_public: str = Field(
        "", description="VAPID public key, from `chatserver vapid`; sent to browsers"
    )
    vapid_private: SecretStr = Field(
        SecretStr(""),
        description="VAPID private key, from `chatserver vapid`; only workers need it",
    )
    subject: str = Field(
        "",
        description="mailto: or https: address at which push services can contact the operator",
    )
    fcm_account: SecretStr = Field(
        SecretStr(""), description="Google service account for FCM, as JSON"
    )
    apns_key: SecretStr = Field(
        SecretStr(""),
        description="Contents of the .p8 key file for APNs; unset: iOS pushes are sent through FCM",
    )
    apns_key_id: str = Field("", description="Key id of `apns_key`")
    apns_team_id: str = Field("", description="Apple team id of `apns_key`")
    apns_topic: str = Field("", description="Bundle id of the application")
    apns_url: HttpUrl = Field(
        "https://api.push.apple.com",
        description="URL of APNs; for development builds, https://api.sandbox.push.apple.com",
    )

    def get_client_config(self) -> dict[str, object]:
        return {"push_key": self.vapid_public or None}
