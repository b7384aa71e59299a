// Entry point: loads the language, starts the session and renders the application.

import { createRoot } from "react-dom/client";
import { Session } from "./session/session";
import { SessionProvider } from "./session/session_context";
import { readAppearance } from "./settings/appearance";
import { App } from "./shell/App";
import { startServiceWorker } from "./shell/service_worker_client";
import { SESSION_HOOKS } from "./shell/session_hooks";
import "./design/tokens.css";
import "./design/base.css";
import { applyLanguage } from "./i18n";

async function main(): Promise<void> {
  const session = new Session(SESSION_HOOKS);
  void session.start();
  await applyLanguage(readAppearance().language);
  const root = createRoot(document.getElementById("app") as HTMLElement);
  root.render(
    <SessionProvider value={session}>
      <App />
    </SessionProvider>,
  );
  startServiceWorker();
}

void main();
