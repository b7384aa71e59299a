// Operations: live metrics, and tools of operators.

import { useId } from "react";
import { Tabs } from "../design";
import { useText } from "../i18n";
import { Page } from "../page/Page";
import { navigate, useLocation } from "../page/router";
import { Broadcasts } from "./Broadcasts";
import { CostReport } from "./Cost";
import { KeyGate } from "./KeyGate";
import { Overview } from "./Overview";
import { UserAdmin } from "./UserAdmin";

const TABS = ["overview", "cost", "users", "broadcasts"] as const;

/** The page `/operations`. */
export default function OperationsPage() {
  const text = useText().operations;
  const { query } = useLocation();
  const tab = TABS.find((id) => id === query.get("tab")) ?? "overview";
  const panel = useId();
  return (
    <Page
      title={text.title}
      width={tab === "overview" ? "wide" : "column"}
      toolbar={
        <Tabs
          label={text.sections}
          tabs={TABS.map((id) => ({ id, label: text.tabs[id] }))}
          selected={tab}
          panel={panel}
          onSelect={(id) => navigate(`/operations?tab=${id}`, { replace: true })}
        />
      }
    >
      <div id={panel} role="tabpanel" aria-label={text.tabs[tab]} className="stack">
        {tab === "overview" && <Overview />}
        {tab === "cost" && <CostReport />}
        {tab === "users" && (
          <KeyGate scopes={["users:read", "users:write", "users:erase"]}>
            {(http) => <UserAdmin http={http} />}
          </KeyGate>
        )}
        {tab === "broadcasts" && (
          <KeyGate scopes={["broadcast"]}>{(http) => <Broadcasts http={http} />}</KeyGate>
        )}
      </div>
    </Page>
  );
}
