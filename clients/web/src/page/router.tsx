// A router on the History API.

import {
  type AnchorHTMLAttributes,
  type ComponentType,
  createContext,
  lazy,
  type MouseEvent,
  useContext,
  useMemo,
  useSyncExternalStore,
} from "react";
import type { PagePath } from "./paths";

/** Properties of a page: the parameters in its path. */
export interface PageProps {
  params: Readonly<Record<string, string>>;
}

/** A section of the navigation. */
export type Section =
  | "chats"
  | "timeline"
  | "people"
  | "companions"
  | "search"
  | "moderation"
  | "operations"
  | "settings";

/** A page. Its code is loaded when it is first opened. */
export interface Route {
  /** Such as `/chats/:chat`. */
  path: PagePath;
  section: Section;
  /**
   * Position on wide screens. "list": the list pane; "detail": next to the list page `list`;
   * "wide": both panes. A phone shows one page.
   */
  pane: "list" | "detail" | "wide";
  /** For the pane "detail": the path of the page in the list pane. */
  list?: string;
  page: ComponentType<PageProps>;
}

interface RouteOptions extends Omit<Route, "page"> {
  load: () => Promise<{ default: ComponentType<PageProps> }>;
}

/** Return a route whose page is loaded on demand; it is the default export of its module. */
export function createRoute({ load, ...options }: RouteOptions): Route {
  return { ...options, page: lazy(load) };
}

/** A route and the parameters of the current path. */
export interface Match {
  route: Route;
  params: Readonly<Record<string, string>>;
}

/** Return the first route that matches a path. */
export function matchRoute(routes: readonly Route[], path: string): Match | null {
  const parts = path.split("/").filter(Boolean);
  for (const route of routes) {
    const pattern = route.path.split("/").filter(Boolean);
    if (pattern.length !== parts.length) continue;
    const params: Record<string, string> = {};
    const isMatch = pattern.every((name, index) => {
      const part = parts[index] ?? "";
      if (!name.startsWith(":")) return name === part;
      params[name.slice(1)] = decode(part);
      return true;
    });
    if (isMatch) return { route, params };
  }
  return null;
}

function decode(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Return a path with encoded parameters, such as `buildPath("/chats/:chat", { chat })`. */
export function buildPath(pattern: string, params: Readonly<Record<string, string>> = {}): string {
  return pattern.replace(/:(\w+)/g, (_, name: string) => encodeURIComponent(params[name] ?? ""));
}

// location

const LOCATION_CHANGED = "tierchat:location";

function subscribe(listener: () => void): () => void {
  addEventListener("popstate", listener);
  addEventListener(LOCATION_CHANGED, listener);
  return () => {
    removeEventListener("popstate", listener);
    removeEventListener(LOCATION_CHANGED, listener);
  };
}

const getCurrentUrl = (): string => location.pathname + location.search;

/** Return the current path and query. */
export function useLocation(): { path: string; query: URLSearchParams } {
  const url = useSyncExternalStore(subscribe, getCurrentUrl);
  return useMemo(() => {
    const { pathname, searchParams } = new URL(url, location.origin);
    return { path: pathname, query: searchParams };
  }, [url]);
}

/** Go to a path, such as `/chats/d-ann~ben?seq=5`. */
export function navigate(path: string, options: { replace?: boolean } = {}): void {
  if (path === getCurrentUrl()) return;
  if (options.replace === true) history.replaceState(null, "", path);
  else history.pushState(null, "", path);
  dispatchEvent(new Event(LOCATION_CHANGED));
}

/** A link to a page of the client. */
export function Link({
  to,
  onClick,
  ...rest
}: { to: string } & AnchorHTMLAttributes<HTMLAnchorElement>) {
  const onLinkClick = (event: MouseEvent<HTMLAnchorElement>): void => {
    onClick?.(event);
    const isPlain = !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (event.defaultPrevented || event.button !== 0 || !isPlain || rest.target) return;
    event.preventDefault();
    navigate(to);
  };
  return <a {...rest} href={to} onClick={onLinkClick} />;
}

const MatchContext = createContext<Match | null>(null);

/** Provides the current route to the pages. */
export const MatchProvider = MatchContext.Provider;

/** Return the current route. */
export function useMatch(): Match | null {
  return useContext(MatchContext);
}
