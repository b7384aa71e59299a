// Entry point: loads the language, starts the session and renders the application.

import { createRoot } from "react-dom/client";
import { App } from "./app/App";
import { startServiceWorker } from "./app/service_worker_client";
import { Session } from "./app/session";
import { SessionProvider } from "./app/session_context";
import "./design/tokens.css";
import "./design/base.css";
import { startLanguage } from "./i18n";

async function main(): Promise<void> {
  const session = new Session();
  void session.start();
  await startLanguage();
  const root = createRoot(document.getElementById("app") as HTMLElement);
  root.render(
    <SessionProvider value={session}>
      <App />
    </SessionProvider>,
  );
  startServiceWorker();
}

void main();
