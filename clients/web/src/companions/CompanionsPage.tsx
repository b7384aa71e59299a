// AI companions: sessions and memory.

import { Bot, Brain, CircleStop, Ellipsis, MessageCircle, Plus, RefreshCw } from "lucide-react";
import { useState } from "react";
import type { Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { type Pages, usePages } from "../data/use_pages";
import { Avatar, Button, EmptyState, Label, MenuButton, type MenuItem, showToast } from "../design";
import { useText } from "../i18n";
import { formatDateTime } from "../i18n/format";
import { PagesView } from "../page/Loadable";
import { Page, Section } from "../page/Page";
import { Row, Rows } from "../page/Row";
import { buildPath, navigate } from "../page/router";
import { useIsAdmin } from "../session/me";
import styles from "./CompanionsPage.module.css";
import { ManageCompanions } from "./ManageCompanions";
import { MemoryDialog } from "./MemoryDialog";
import { EndDialog, RenewDialog } from "./session_dialogs";

/** The page `/companions`. */
export default function CompanionsPage() {
  const text = useText().companions;
  const { http } = useClient();
  const isAdmin = useIsAdmin();
  const companions = usePages("companions", (cursor) =>
    http.call("list_companions", { limit: 100, ...(cursor ? { cursor } : {}) }),
  );
  const sessions = usePages("sessions", (cursor) =>
    http.call("list_sessions_with_companions", { limit: 50, ...(cursor ? { cursor } : {}) }),
  );
  const empty = (
    <EmptyState icon={Bot} title={text.none}>
      {text.noneHint}
    </EmptyState>
  );
  return (
    <Page title={text.title} subtitle={text.hint}>
      <PagesView pages={companions} empty={empty}>
        {(items) => (
          <>
            <ul className={styles["cards"]} aria-label={text.title}>
              {items.map((companion) => (
                <CompanionCard key={companion.id} companion={companion} sessions={sessions} />
              ))}
            </ul>
            <Section title={text.sessions}>
              <PagesView pages={sessions} empty={<p>{text.noSessions}</p>}>
                {(all) => (
                  <Rows label={text.sessions}>
                    {all.map((session) => (
                      <SessionRow
                        key={session.chat}
                        session={session}
                        companion={items.find(({ id }) => id === session.companion)}
                        onChange={sessions.reload}
                      />
                    ))}
                  </Rows>
                )}
              </PagesView>
            </Section>
          </>
        )}
      </PagesView>
      {isAdmin && <ManageCompanions companions={companions} />}
    </Page>
  );
}

const isActive = ({ delete_time: end }: Http.SessionInfo): boolean => end == null;

interface CompanionCardProps {
  companion: Http.CompanionInfo;
  sessions: Pages<Http.SessionInfo>;
}

function CompanionCard({ companion, sessions }: CompanionCardProps) {
  const text = useText().companions;
  const client = useClient();
  const attempt = useAttempt();
  const [open, setOpen] = useState<"memory" | "renew" | "end" | null>(null);
  const active = sessions.items.find((session) => {
    return session.companion === companion.id && isActive(session);
  });
  const show = (chat: string): void => navigate(buildPath("/chats/:chat", { chat }));
  const start = (): Promise<boolean> =>
    attempt(async () => show((await client.createSession(companion.id)).id));
  const items: MenuItem[] = [
    { label: text.memory, icon: Brain, onSelect: () => setOpen("memory") },
    ...(active === undefined
      ? []
      : [
          { label: text.newSession, icon: RefreshCw, onSelect: () => setOpen("renew") },
          {
            label: text.end,
            icon: CircleStop,
            isDangerous: true,
            startsGroup: true,
            onSelect: () => setOpen("end"),
          },
        ]),
  ];
  return (
    <li className={styles["card"]}>
      <Avatar id={companion.id} name={companion.name} size="l" />
      <div className={styles["names"]}>
        <h2>
          <bdi>{companion.name}</bdi>
        </h2>
        <p>{text.version(companion.version)}</p>
      </div>
      <MenuButton icon={Ellipsis} label={text.actions(companion.name)} items={items} size="s" />
      <Button
        variant="primary"
        icon={MessageCircle}
        className={styles["start"]}
        aria-label={`${active === undefined ? text.chat : text.continue}: ${companion.name}`}
        onClick={() => (active === undefined ? void start() : show(active.chat))}
      >
        {active === undefined ? text.chat : text.continue}
      </Button>
      {open === "memory" && (
        <MemoryDialog
          companion={companion.id}
          name={companion.name}
          onClose={() => setOpen(null)}
        />
      )}
      {open === "renew" && <RenewDialog companion={companion.id} onClose={() => setOpen(null)} />}
      {open === "end" && active !== undefined && (
        <EndDialog {...active} onEnded={sessions.reload} onClose={() => setOpen(null)} />
      )}
    </li>
  );
}

interface SessionRowProps {
  session: Http.SessionInfo;
  companion: Http.CompanionInfo | undefined;
  onChange: () => void;
}

function SessionRow({ session, companion, onChange }: SessionRowProps) {
  const text = useText().companions;
  const client = useClient();
  const attempt = useAttempt();
  const [isEnding, setEnding] = useState(false);
  const name = companion?.name ?? session.companion;
  const hasUpdate = companion !== undefined && companion.version > session.ai_version;
  const period = isActive(session)
    ? text.startedAt(formatDateTime(session.create_time))
    : text.endedAt(formatDateTime(session.delete_time ?? session.create_time));
  const update = (): void =>
    void attempt(async () => {
      const changed = await client.http.call("update_session", { chat: session.chat, body: {} });
      showToast(text.updated(changed.ai_version));
      onChange();
    });
  const items: MenuItem[] = [
    ...(hasUpdate ? [{ label: text.update, icon: Plus, onSelect: update }] : []),
    { label: text.end, icon: CircleStop, isDangerous: true, onSelect: () => setEnding(true) },
  ];
  return (
    <Row
      picture={<Avatar id={session.companion} name={name} />}
      title={<bdi>{name}</bdi>}
      note={isActive(session) ? <Label kind="accent">{text.active}</Label> : undefined}
      text={`${period} · ${text.version(session.ai_version)}`}
      to={buildPath("/chats/:chat", { chat: session.chat })}
      actions={
        <>
          {isActive(session) && (
            <MenuButton icon={Ellipsis} label={text.actions(name)} items={items} size="s" />
          )}
          {isEnding && (
            <EndDialog {...session} onEnded={onChange} onClose={() => setEnding(false)} />
          )}
        </>
      }
    />
  );
}
