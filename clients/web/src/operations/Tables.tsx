// Tables of the overview: processes, busiest chats, slow clients, and findings of the audit.

import type { ReactNode } from "react";
import type { Http } from "tierchat";
import { Label } from "../design";
import { useText } from "../i18n";
import { formatDateTime, formatRelative } from "../i18n/format";
import { TextWithCode } from "../i18n/TextWithCode";
import { Section } from "../page/Page";
import styles from "./Tables.module.css";
import * as units from "./units";

const CHATS_MAX = 10;
const COUNTS_MAX = 8;

interface TableProps {
  label: string;
  columns: readonly string[];
  rows: readonly (readonly ReactNode[])[];
}

/** A table that scrolls horizontally if it is too wide. */
export function Table({ label, columns, rows }: TableProps) {
  return (
    <div className={styles["scroll"]} tabIndex={0} role="group" aria-label={label}>
      <table>
        <thead>
          <tr>
            {columns.map((column) => (
              <th key={column} scope="col">
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {row.map((cell, column) =>
                column === 0 ? (
                  <th key={column} scope="row">
                    {cell}
                  </th>
                ) : (
                  <td key={column}>{cell}</td>
                ),
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The processes that report metrics. */
export function Processes({ overview }: { overview: Http.Overview }) {
  const { operations: text } = useText();
  const { processes, now_ms: now } = overview;
  const rows = processes.map((process) => {
    const isGateway = process.kind === "gateway";
    const silenceS = Math.round((now - process.reported_ms) / 1000);
    return [
      <>
        {process.kind} {process.does}
        <small>
          {process.host} · {process.pid}
        </small>
      </>,
      <Label key="state" kind={process.is_stale ? "danger" : "plain"}>
        {process.is_stale ? text.silentFor(units.seconds(silenceS)) : text.healthy}
      </Label>,
      units.seconds(Math.round((now - process.started_ms) / 1000)),
      units.share(process.cpu_share),
      isGateway ? units.count(process.connections) : "–",
      isGateway ? units.perSecond(process.sends_per_s) : "–",
      units.millis(process.loop_p99_ms),
    ];
  });
  return (
    <Section title={text.processes} about={text.processesHint}>
      {rows.length === 0 ? (
        <p>
          <TextWithCode>{text.noProcesses}</TextWithCode>
        </p>
      ) : (
        <Table label={text.processes} columns={Object.values(text.processColumns)} rows={rows} />
      )}
    </Section>
  );
}

/** The chats with the most messages in the last minute. */
export function BusyChats({ overview }: { overview: Http.Overview }) {
  const { operations: text } = useText();
  const chats = overview.top_chats.slice(0, CHATS_MAX);
  const messagesMax = chats[0]?.messages ?? 1;
  return (
    <Section title={text.busyChats} about={text.busyChatsHint}>
      {chats.length === 0 && <p>{text.noBusyChats}</p>}
      <ol className={styles["bars"]}>
        {chats.map(({ chat, messages, per_s: perS }) => (
          <li key={chat}>
            <code>{chat}</code>
            <span>
              {units.count(messages)} · {units.perSecond(perS)}
            </span>
            <meter min={0} max={messagesMax} value={messages} aria-hidden />
          </li>
        ))}
      </ol>
    </Section>
  );
}

/** Slow clients, and rejected sends and connections. */
export function Clients({ overview }: { overview: Http.Overview }) {
  const { operations: text } = useText();
  const { slow, queues, refused, limited, closes, now_ms: now } = overview;
  const { user, device, when, queued } = text.clientColumns;
  return (
    <Section title={text.clients} about={text.clientsHint}>
      <h3>{text.longestQueues}</h3>
      {queues.length === 0 ? (
        <p>{text.noQueues}</p>
      ) : (
        <Table
          label={text.longestQueues}
          columns={[user, device, queued]}
          rows={queues.map((queue) => [queue.user, queue.device, units.bytes(queue.waiting_bytes)])}
        />
      )}
      <h3>{text.slowCloses}</h3>
      {slow.length === 0 ? (
        <p>{text.noSlowCloses}</p>
      ) : (
        <Table
          label={text.slowCloses}
          columns={[user, device, when, queued]}
          rows={slow.map((client) => [
            client.user,
            client.device,
            formatRelative(client.at_ms, now),
            units.bytes(client.waiting_bytes),
          ])}
        />
      )}
      <Counts title={text.refused} counts={refused} />
      <Counts title={text.limited} counts={limited} />
      <Counts title={text.closes} counts={closes} names={text.closeCodes} />
    </Section>
  );
}

interface CountsProps {
  title: string;
  counts: readonly Http.Count[];
  names?: Readonly<Record<string, string>>;
}

function Counts({ title, counts, names = {} }: CountsProps) {
  if (counts.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul className={styles["chips"]}>
        {counts.slice(0, COUNTS_MAX).map(({ name, per_s: perS }) => (
          <li key={name}>
            <code>{name}</code> {names[name] ?? ""} {units.perSecond(perS)}
          </li>
        ))}
      </ul>
    </>
  );
}

/** The continuous audit, which compares the tiers. */
export function AuditSection({ audit }: { audit: Http.AuditReport | null }) {
  const { operations: text, common } = useText();
  if (audit === null) return <Section title={text.audit}>{common.loading}</Section>;
  if (audit.newest_ms === null) {
    return (
      <Section title={text.audit} about={<TextWithCode>{text.auditHint}</TextWithCode>}>
        <p>
          <TextWithCode>{text.noAudit}</TextWithCode>
        </p>
      </Section>
    );
  }
  const oldest = audit.oldest_ms === null ? "–" : formatRelative(audit.oldest_ms);
  const facts: [string, string][] = [
    [text.auditFacts.lastRun, formatRelative(audit.newest_ms)],
    [text.auditFacts.partitions, text.auditPartitions(audit.audited, audit.partitions, oldest)],
    [
      text.auditFacts.checked,
      text.auditChecked(units.count(audit.chats), units.count(audit.entries)),
    ],
    [text.auditFacts.failed, units.count(audit.failed)],
    [text.auditFacts.findings, units.count(audit.findings)],
  ];
  return (
    <Section title={text.audit} about={<TextWithCode>{text.auditHint}</TextWithCode>}>
      <Facts facts={facts} />
      {audit.latest.length === 0 && <p>{text.noFindings}</p>}
      <ul className={styles["findings"]}>
        {audit.latest.map((finding, index) => (
          <li key={index}>
            <p>
              <strong>{finding.category}: </strong>
              {finding.meaning}
            </p>
            <p className={styles["where"]}>
              <code>{finding.chat}</code> seq {finding.first}
              {finding.last === finding.first ? "" : `–${finding.last}`} ·{" "}
              {formatDateTime(finding.at_ms)}
            </p>
            <p>{finding.advice}</p>
          </li>
        ))}
      </ul>
    </Section>
  );
}

/** A list of terms with values. */
export function Facts({ facts }: { facts: readonly (readonly [string, string])[] }) {
  return (
    <dl className={styles["facts"]}>
      {facts.map(([term, value]) => (
        <div key={term}>
          <dt>{term}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}
