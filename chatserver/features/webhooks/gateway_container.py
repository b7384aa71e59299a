"""Dependencies of webhooks in gateways. A worker calls the before-send webhook for them."""

from __future__ import annotations

from chatserver.container import feature_ports
from chatserver.container.gateway import GatewayContainer
from chatserver.features.webhooks.before_send import BeforeSendCheck, BeforeSendQueue
from chatserver.features.webhooks.settings import Webhooks
from chatserver.service.messaging.message_sender import SendInterceptor


def make_before_send(core: GatewayContainer) -> BeforeSendCheck | None:
    if core.settings.get(Webhooks).before_send_url is None:
        return None
    return BeforeSendCheck(
        verdicts=core.warm,
        references=core.hot_membership,
        settings=core.settings.get(Webhooks),
        clock=core.clock,
        body_bounds=core.settings.chats.body_bounds,
    )


def send_interceptor(core: GatewayContainer) -> SendInterceptor | None:
    before_send = core.get(make_before_send)
    return None if before_send is None else BeforeSendQueue(before_send)


def check_edit(core: GatewayContainer) -> feature_ports.CheckEdit | None:
    before_send = core.get(make_before_send)
    return None if before_send is None else before_send.check_edit
