// Moderation: reports in the user's groups; for operators also all reports, legal holds and bans.

import { ShieldCheck } from "lucide-react";
import { useId, useMemo, useState } from "react";
import { useChats, useClient } from "tierchat/react";
import { EmptyState, Tabs } from "../design";
import { isManager, type Role } from "../directory/roles";
import { useText } from "../i18n";
import { KeyGate } from "../operations/KeyGate";
import { UserBan } from "../operations/UserAdmin";
import { Page, Section } from "../page/Page";
import { navigate, useLocation } from "../page/router";
import { useIsAdmin } from "../session/me";
import { AllReports } from "./AllReports";
import { GroupReports } from "./GroupReports";
import { Holds } from "./Holds";

const TABS = ["groups", "reports", "holds", "bans"] as const;
type Tab = (typeof TABS)[number];

/** The page `/moderation`. */
export default function ModerationPage() {
  const text = useText().moderation;
  const isAdmin = useIsAdmin();
  const { query } = useLocation();
  const tab: Tab = TABS.find((id) => id === query.get("tab")) ?? "groups";
  const panel = useId();
  const tabs = TABS.filter((id) => isAdmin || id === "groups" || id === tab);
  return (
    <Page
      title={text.title}
      toolbar={
        tabs.length > 1 && (
          <Tabs
            label={text.sections}
            tabs={tabs.map((id) => ({ id, label: text.tabs[id] }))}
            selected={tab}
            panel={panel}
            onSelect={(id) => navigate(`/moderation?tab=${id}`, { replace: true })}
          />
        )
      }
    >
      <div id={panel} role="tabpanel" aria-label={text.tabs[tab]} className="stack">
        {tab === "groups" && <MyGroups />}
        {tab === "reports" && (
          <KeyGate scopes={["moderate", "messages:delete", "chats:read"]}>
            {(http) => <AllReports http={http} />}
          </KeyGate>
        )}
        {tab === "holds" && <KeyGate scopes={["holds"]}>{(http) => <Holds http={http} />}</KeyGate>}
        {tab === "bans" && (
          <KeyGate scopes={["users:read", "users:write"]}>
            {(http) => <UserBan http={http} />}
          </KeyGate>
        )}
      </div>
    </Page>
  );
}

/** Reports of the groups where the user is an owner or admin. */
function MyGroups() {
  const text = useText();
  const client = useClient();
  const chats = useChats();
  const [emptyGroups, setEmptyGroups] = useState<ReadonlySet<string>>(new Set());
  const groups = useMemo(
    () =>
      chats.filter(
        ({ kind, members }) =>
          kind === "group" && isManager(members?.[client.user] as Role | undefined),
      ),
    [chats, client.user],
  );
  const isEmpty = groups.every(({ id }) => emptyGroups.has(id));
  return (
    <>
      {isEmpty && (
        <EmptyState icon={ShieldCheck} title={text.moderation.noGroups}>
          {text.moderation.noGroupsHint}
        </EmptyState>
      )}
      {groups.map(({ id, name }) => (
        <div key={id} hidden={emptyGroups.has(id)}>
          <Section title={name ?? text.chats.unnamedGroup}>
            <GroupReports
              chat={id}
              onCount={(count) =>
                setEmptyGroups((previous) => {
                  if (previous.has(id) === (count === 0)) return previous;
                  const next = new Set(previous);
                  if (count === 0) next.add(id);
                  else next.delete(id);
                  return next;
                })
              }
            />
          </Section>
        </div>
      ))}
    </>
  );
}
