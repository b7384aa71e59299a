// The open reports of all chats, for operators.

import { ShieldCheck } from "lucide-react";
import { useState } from "react";
import { ChatError, type Http, type HttpClient } from "tierchat";
import { useAttempt } from "../data/use_attempt";
import { useLoad } from "../data/use_load";
import { usePages } from "../data/use_pages";
import { Button, ConfirmDialog, EmptyState, Select, showToast } from "../design";
import { useText } from "../i18n";
import { PagesView } from "../page/Loadable";
import { ReportCard } from "./ReportCard";

type Order = "oldest" | "newest";

/** Open reports, sorted by time. */
export function AllReports({ http }: { http: HttpClient }) {
  const text = useText().moderation;
  const [order, setOrder] = useState<Order>("oldest");
  const pages = usePages(`open reports ${order}`, (cursor) =>
    http.call("list_open_reports", { order, limit: 50, ...(cursor ? { cursor } : {}) }),
  );
  const empty = (
    <EmptyState icon={ShieldCheck} title={text.noReports}>
      {text.noReportsHint}
    </EmptyState>
  );
  return (
    <>
      <Select
        label={text.order}
        value={order}
        options={[
          { value: "oldest", label: text.oldest },
          { value: "newest", label: text.newest },
        ]}
        onChange={setOrder}
      />
      <PagesView pages={pages} empty={empty}>
        {(items) => (
          <div>
            {items.map((report) => (
              <OpenReport
                key={`${report.chat} ${report.seq} ${report.reporter}`}
                report={report}
                http={http}
                onResolved={() => pages.update((all) => all.filter((other) => other !== report))}
              />
            ))}
          </div>
        )}
      </PagesView>
    </>
  );
}

interface OpenReportProps {
  report: Http.ReportInfo;
  http: HttpClient;
  onResolved: () => void;
}

function OpenReport({ report, http, onResolved }: OpenReportProps) {
  const text = useText().moderation;
  const attempt = useAttempt();
  const [isConfirming, setConfirming] = useState(false);
  const [isDeleted, setDeleted] = useState(false); // the API does not list deleted messages
  const { chat, seq, reporter } = report;
  const loaded = useLoad(`any ${chat} ${seq}`, () => findMessage(http, chat, seq));
  const message =
    isDeleted && loaded.data ? { ...loaded, data: { ...loaded.data, deleted: true } } : loaded;
  const resolve = (): void =>
    void attempt(async () => {
      await http.call("resolve_report", { chat, seq, user: reporter });
      onResolved();
      showToast(text.resolved);
    });
  const remove = (): Promise<boolean> =>
    attempt(async () => {
      await http.call("delete_any_message", { chat, seq });
      setDeleted(true);
      showToast(text.deleted);
    });
  const exists = message.data !== null && message.data.deleted !== true;
  return (
    <>
      <ReportCard
        report={report}
        message={message}
        chatName={chat}
        actions={
          <>
            {exists && <Button onClick={() => setConfirming(true)}>{text.deleteMessage}</Button>}
            <Button variant="primary" aria-label={text.resolveReport(reporter)} onClick={resolve}>
              {text.resolve}
            </Button>
          </>
        }
      />
      {isConfirming && (
        <ConfirmDialog
          title={text.deleteTitle}
          message={text.deleteText}
          action={text.deleteMessage}
          isDangerous
          onConfirm={remove}
          onClose={() => setConfirming(false)}
        />
      )}
    </>
  );
}

const PAGES_MAX = 5;

/** Load a message of any chat; the API has only a list by time, which is read newest first. */
async function findMessage(http: HttpClient, chat: string, seq: number): Promise<Http.Message> {
  let cursor: string | null | undefined;
  for (let page = 0; page < PAGES_MAX; page += 1) {
    const query = { chat, order: "newest" as const, limit: 200, ...(cursor ? { cursor } : {}) };
    const { items, next } = await http.call("list_any_messages", query);
    const message = items.find((item) => item.seq === seq);
    if (message !== undefined) return message;
    cursor = next;
    if (cursor == null || (items.at(-1)?.seq ?? 0) < seq) break;
  }
  throw new ChatError("not_found", "the message is too old or does not exist");
}
