// A document for React: import this before `react-dom`.

import { Window } from "happy-dom";

const window = new Window();
Object.assign(globalThis, {
  window,
  document: window.document,
  HTMLElement: window.HTMLElement,
  HTMLIFrameElement: window.HTMLIFrameElement,
  HTMLTextAreaElement: window.HTMLTextAreaElement,
  Event: window.Event,
  KeyboardEvent: window.KeyboardEvent,
  IS_REACT_ACT_ENVIRONMENT: true,
});

if (typeof navigator === "undefined") Object.assign(globalThis, { navigator: window.navigator });
