// Open reports of a group, with the reported messages.

import { useEffect } from "react";
import type { Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { useApi } from "../data/use_load";
import { usePages } from "../data/use_pages";
import { Button, showToast } from "../design";
import { useText } from "../i18n";
import { PagesView } from "../page/Loadable";
import { ReportCard } from "./ReportCard";
import styles from "./ReportCard.module.css";

interface GroupReportsProps {
  chat: string;
  /** Called with the number of open reports once they are loaded. */
  onCount?: (count: number) => void;
}

/** The open reports of a chat; for its owners and admins. */
export function GroupReports({ chat, onCount }: GroupReportsProps) {
  const text = useText();
  const client = useClient();
  const pages = usePages(`reports ${chat}`, async (cursor) => {
    const query = { chat, limit: 100, ...(cursor ? { cursor } : {}) };
    const { items, next } = await client.http.call("list_reports", query);
    return { items: items.filter(({ state }) => state === "open"), next: next ?? null };
  });
  const count = pages.isInitial ? null : pages.items.length;
  useEffect(() => {
    if (count !== null) onCount?.(count);
  }, [count, onCount]);
  const empty = <p className={styles["none"]}>{text.group.noReports}</p>;
  return (
    <PagesView pages={pages} empty={empty}>
      {(items) =>
        items.map((report) => (
          <GroupReport
            key={`${report.seq} ${report.reporter}`}
            report={report}
            onResolved={() => pages.update((all) => all.filter((other) => other !== report))}
            onDeleted={pages.reload}
          />
        ))
      }
    </PagesView>
  );
}

interface GroupReportProps {
  report: Http.ReportInfo;
  onResolved: () => void;
  onDeleted: () => void;
}

function GroupReport({ report, onResolved, onDeleted }: GroupReportProps) {
  const text = useText().group;
  const client = useClient();
  const attempt = useAttempt();
  const { chat, seq, reporter } = report;
  const message = useApi("get_message", { chat, seq });
  const resolve = (): void =>
    void attempt(async () => {
      await client.http.call("resolve_report", { chat, seq, user: reporter });
      onResolved();
      showToast(text.resolved);
    });
  const remove = (): void =>
    void attempt(async () => {
      await client.http.call("delete_message", { chat, seq, for: "all" });
      message.reload();
      onDeleted();
    });
  const exists = message.data !== null && message.data.deleted !== true;
  return (
    <ReportCard
      report={report}
      message={message}
      actions={
        <>
          {exists && <Button onClick={remove}>{text.deleteMessage}</Button>}
          <Button variant="primary" aria-label={text.resolveReport(reporter)} onClick={resolve}>
            {text.resolve}
          </Button>
        </>
      }
    />
  );
}
