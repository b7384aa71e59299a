// The shell: navigation, list pane and detail pane. A phone shows one pane.

import { MessageCircleOff } from "lucide-react";
import { lazy, Suspense, useEffect, useMemo, useState } from "react";
import { useUnread } from "tierchat/react";
import { useKeys } from "../data/use_keys";
import { useMediaQuery } from "../data/use_media_query";
import { Badge, EmptyState } from "../design";
import { useDirectoryRefresh } from "../directory/directory";
import { useText } from "../i18n";
import {
  Link,
  type Match,
  MatchProvider,
  matchRoute,
  navigate,
  type Section,
  useLocation,
} from "../page/router";
import { useIsAdmin } from "../session/me";
import { ConnectionBanner } from "./ConnectionBanner";
import { ErrorBoundary } from "./ErrorBoundary";
import { ROUTES } from "./routes";
import styles from "./Shell.module.css";
import { SECTIONS, type SectionInfo } from "./sections";

const ShortcutsDialog = lazy(() => import("../settings/Shortcuts"));

/** The page for users who are logged in. */
export function Shell() {
  const text = useText();
  const { path } = useLocation();
  const match = useMemo(() => matchRoute(ROUTES, path), [path]);
  const unread = useUnread();
  useDirectoryRefresh();
  useEffect(() => {
    if (path === "/") navigate("/chats", { replace: true });
  }, [path]);
  useEffect(() => {
    document.title = unread > 0 ? `(${unread}) ${text.common.appName}` : text.common.appName;
    const badge = unread > 0 ? navigator.setAppBadge?.(unread) : navigator.clearAppBadge?.();
    badge?.catch(() => {});
  }, [unread, text]);
  return (
    <div className={styles["shell"]} data-pane={match?.route.pane ?? "wide"}>
      <a className={styles["skip"]} href="#content">
        {text.common.skipToContent}
      </a>
      <Navigation current={match?.route.section} unread={unread} />
      <div className={styles["main"]}>
        <ConnectionBanner />
        <MatchProvider value={match}>
          <Panes match={match} path={path} />
        </MatchProvider>
      </div>
      <Shortcuts match={match} path={path} />
    </div>
  );
}

/** Keyboard shortcuts that work on every page. */
function Shortcuts({ match, path }: { match: Match | null; path: string }) {
  const [isHelpOpen, setHelpOpen] = useState(false);
  const isPhone = useMediaQuery(PHONE);
  const hasList = match?.route.section === "chats" && (!isPhone || match.route.pane === "list");
  const openList = (query: string) => (): void => navigate(`${hasList ? path : "/chats"}?${query}`);
  useKeys({
    "?": () => setHelpOpen(true),
    "/": openList("find"),
    "Mod+k": openList("find"),
    "Alt+n": openList("new=chat"),
  });
  return (
    isHelpOpen && (
      <Suspense fallback={null}>
        <ShortcutsDialog onClose={() => setHelpOpen(false)} />
      </Suspense>
    )
  );
}

const PHONE = "(max-width: 719px)";

function Panes({ match, path }: { match: Match | null; path: string }) {
  const text = useText();
  const listPath = match?.route.pane === "list" ? match.route.path : match?.route.list;
  const list = listPath === undefined ? null : matchRoute(ROUTES, listPath);
  const isList = match?.route.pane === "list";
  const isPhone = useMediaQuery(PHONE);
  return (
    <div className={styles["panes"]}>
      {list !== null && (
        <section
          className={styles["list"]}
          key={listPath}
          data-pane-name="list"
          role={isPhone && isList ? "main" : "region"}
          aria-label={text.common.sections[list.route.section]}
        >
          <ErrorBoundary>
            <Suspense fallback={null}>
              <list.route.page params={list.params} />
            </Suspense>
          </ErrorBoundary>
        </section>
      )}
      <main id="content" tabIndex={-1} className={styles["detail"]} data-pane-name="detail">
        <ErrorBoundary resetKey={path}>
          <Suspense fallback={null}>
            {match === null ? (
              path !== "/" && (
                <EmptyState
                  isPage
                  icon={MessageCircleOff}
                  title={text.common.pageNotFound}
                  action={<Link to="/chats">{text.common.backToChats}</Link>}
                >
                  {text.common.pageNotFoundHint}
                </EmptyState>
              )
            ) : isList ? (
              <Placeholder match={match} />
            ) : (
              <match.route.page params={match.params} />
            )}
          </Suspense>
        </ErrorBoundary>
      </main>
    </div>
  );
}

/** The content of the detail pane while only a list page is open. */
function Placeholder({ match }: { match: Match }) {
  const text = useText();
  const section = SECTIONS.find(({ id }) => id === match.route.section);
  if (section === undefined) return null;
  const { [section.id]: hint } = text.common.pickHints as Partial<Record<Section, string>>;
  const title = section.id === "chats" ? text.chats.pickOne : text.common.sections[section.id];
  return (
    <EmptyState icon={section.icon} title={title}>
      {hint}
    </EmptyState>
  );
}

function Navigation({ current, unread }: { current: string | undefined; unread: number }) {
  const text = useText();
  const isAdmin = useIsAdmin();
  const visible = SECTIONS.filter(
    (section) =>
      (section.isAdmin !== true || isAdmin) && matchRoute(ROUTES, `/${section.id}`) !== null,
  );
  return (
    <nav className={styles["rail"]} aria-label={text.common.navigation}>
      <ul>
        {visible.map((section) => (
          <NavigationItem
            key={section.id}
            section={section}
            isCurrent={section.id === current}
            unread={section.id === "chats" ? unread : 0}
          />
        ))}
      </ul>
    </nav>
  );
}

interface NavigationItemProps {
  section: SectionInfo;
  isCurrent: boolean;
  unread: number;
}

function NavigationItem({ section, isCurrent, unread }: NavigationItemProps) {
  const text = useText();
  const label = text.common.sections[section.id];
  return (
    <li data-last={section.isLast === true} data-admin={section.isAdmin === true}>
      <Link
        to={`/${section.id}`}
        className={styles["item"]}
        aria-current={isCurrent ? "page" : undefined}
      >
        <span className={styles["icon"]}>
          <section.icon size={22} aria-hidden />
          <span className={styles["count"]}>
            <Badge count={unread} label={text.chats.unread(unread)} />
          </span>
        </span>
        <span className={styles["label"]}>{label}</span>
      </Link>
    </li>
  );
}
