// Registration of the service worker, for offline starts and notifications.

import { showToast } from "../design";
import { getText } from "../i18n";
import { navigate } from "../page/router";

const SCRIPT = "/service_worker.js";
const CHAT = /^[A-Za-z0-9_~:.-]{1,140}$/;

// A Trusted Types policy that allows only this URL.
const trusted = globalThis.trustedTypes?.createPolicy("tierchat-worker", {
  createScriptURL: () => SCRIPT,
});

/** Register the service worker and handle its messages. */
export function startServiceWorker(): void {
  if (!("serviceWorker" in navigator) || import.meta.env.DEV) return;
  const { serviceWorker } = navigator;
  const hadWorker = serviceWorker.controller !== null;
  serviceWorker.addEventListener("controllerchange", () => {
    if (!hadWorker) return;
    const { common } = getText();
    const action = { label: common.reload, onSelect: () => location.reload() };
    showToast(common.updateReady, { action });
  });
  serviceWorker.addEventListener(
    "message",
    ({ data }: MessageEvent<{ type?: string; chat?: string }>) => {
      if (data.type !== "open-chat" || data.chat === undefined || !CHAT.test(data.chat)) return;
      navigate(`/chats/${encodeURIComponent(data.chat)}`);
    },
  );
  const url = (trusted?.createScriptURL(SCRIPT) ?? SCRIPT) as string;
  void serviceWorker.register(url, { updateViaCache: "none" }).catch(() => {});
}
