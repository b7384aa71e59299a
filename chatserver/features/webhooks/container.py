"""Dependencies of webhooks in the API and in workers."""

from __future__ import annotations

from functools import cached_property

from chatserver.container import feature_ports, storage_feature_ports
from chatserver.container.storage import StorageContainer
from chatserver.features.webhooks.before_send import BeforeSendCheck, BeforeSendQueue
from chatserver.features.webhooks.client import Webhook
from chatserver.features.webhooks.hot import WebhookEvents
from chatserver.features.webhooks.settings import Webhooks
from chatserver.service.messaging.message_sender import SendInterceptor
from chatserver.service.moderation.blocks_and_reports import PublishEvent


class WebhookContainer:
    def __init__(self, core: StorageContainer) -> None:
        self._core = core
        self.events = WebhookEvents(core.hot, core.settings.get(Webhooks))

    @cached_property
    def before_send(self) -> BeforeSendCheck | None:
        """The before-send check, if the webhook is configured."""
        core, hooks = self._core, self._core.settings.get(Webhooks)
        if hooks.before_send_url is None:
            return None
        webhook = Webhook(
            outbound=core.outbound,
            url=hooks.before_send_url,
            secret=hooks.secret.get_secret_value(),
            timeout_s=hooks.before_send_timeout_s,
            clock=core.clock,
        )
        return BeforeSendCheck(
            verdicts=webhook,
            references=core.hot_membership,
            settings=hooks,
            clock=core.clock,
            body_bounds=core.settings.chats.body_bounds,
        )


def send_interceptor(core: StorageContainer) -> SendInterceptor | None:
    before_send = core.get(WebhookContainer).before_send
    return None if before_send is None else BeforeSendQueue(before_send)


def check_edit(core: StorageContainer) -> feature_ports.CheckEdit | None:
    before_send = core.get(WebhookContainer).before_send
    return None if before_send is None else before_send.check_edit


def publish_event(core: StorageContainer) -> PublishEvent:
    return core.get(WebhookContainer).events.publish


def publish_entries(core: StorageContainer) -> storage_feature_ports.PublishEntries:
    return core.get(WebhookContainer).events.publish_entries
