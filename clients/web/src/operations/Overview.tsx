// Live metrics: alerts, tiles, charts and tables of the installation.

import { CircleCheck, Info, ShieldOff, TriangleAlert } from "lucide-react";
import { useMemo } from "react";
import { useClient } from "tierchat/react";
import { Button, EmptyState, SkeletonText } from "../design";
import { type Catalog, useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { formatRelative } from "../i18n/format";
import { TextWithCode } from "../i18n/TextWithCode";
import { type Alert, listAlerts, NOTES } from "./alerts";
import { Chart } from "./Chart";
import { CHARTS } from "./charts";
import { isStale, type Metrics } from "./metrics";
import styles from "./Overview.module.css";
import { AuditSection, BusyChats, Clients, Processes } from "./Tables";
import * as units from "./units";
import { type MetricsState, useMetrics } from "./use_metrics";

/** The tab "Overview". */
export function Overview() {
  const text = useText().operations;
  const { user } = useClient();
  const state = useMetrics();
  const { metrics, error, waitMs, retry } = state;
  if (metrics.latest !== null) return <Dashboard state={state} />;
  if (error?.code === "forbidden") {
    return (
      <EmptyState icon={ShieldOff} title={text.adminsOnly}>
        <TextWithCode>{text.adminsOnlyHint(user)}</TextWithCode>
      </EmptyState>
    );
  }
  if (error === null) return <SkeletonText lines={6} />;
  const action = <Button onClick={retry}>{text.retryNow}</Button>;
  return (
    <EmptyState icon={TriangleAlert} title={text.noMetrics} action={action}>
      {getErrorText(error)} {text.retryIn(Math.round(waitMs / 1000))}
    </EmptyState>
  );
}

function Dashboard({ state }: { state: MetricsState }) {
  const text = useText().operations;
  const { metrics, audit } = state;
  const { latest, points } = metrics;
  const now = Date.now();
  if (latest === null) return null;
  const isOutdated = isStale(metrics, now) || state.error !== null;
  const updated = formatRelative(metrics.receivedAtMs ?? now, now);
  return (
    <div className={styles["dashboard"]} data-old={isOutdated}>
      <p className={styles["status"]}>{isOutdated ? text.lastUpdate(updated) : text.live}</p>
      <Alerts state={state} />
      <Tiles metrics={metrics} cost={state.cost} />
      <section className={styles["charts"]} aria-label={text.chartsTitle}>
        {CHARTS.map((chart) => (
          <Chart key={chart.id} chart={chart} points={points} everyMs={latest.every_ms} />
        ))}
      </section>
      <div className={styles["tables"]}>
        <Processes overview={latest} />
        <BusyChats overview={latest} />
        <Clients overview={latest} />
        <AuditSection audit={audit} />
      </div>
    </div>
  );
}

function Alerts({ state }: { state: MetricsState }) {
  const text = useText().operations;
  const { metrics, audit, error } = state;
  const alerts = listAlerts(metrics, audit, Date.now());
  const lines = alerts.map((alert) => ({
    isNote: NOTES.has(alert.kind),
    text: getAlertText(text, alert),
  }));
  if (error !== null) lines.unshift({ isNote: false, text: getErrorText(error) });
  return (
    <ul className={styles["alerts"]} aria-label={text.alertsTitle} aria-live="polite">
      {lines.length === 0 && (
        <li data-level="ok">
          <CircleCheck size={20} aria-hidden />
          {text.allGood}
        </li>
      )}
      {lines.map((line) => (
        <li key={line.text} data-level={line.isNote ? "note" : "bad"}>
          {line.isNote ? <Info size={20} aria-hidden /> : <TriangleAlert size={20} aria-hidden />}
          <span>
            <TextWithCode>{line.text}</TextWithCode>
          </span>
        </li>
      ))}
    </ul>
  );
}

/** Return the text of an alert. */
function getAlertText({ alerts: text }: Catalog["operations"], alert: Alert): string {
  switch (alert.kind) {
    case "silent": {
      const { kind, does, host, pid } = alert.process;
      return text.silent(`${kind}${does ? ` ${does}` : ""} ${pid}`, host, alert.seconds);
    }
    case "noGateway":
      return text.noGateway;
    case "noPersist":
      return text.noPersist;
    case "backlog":
      return alert.hasPersist ? text.backlog(alert.seconds) : text.backlogNoWorker(alert.seconds);
    case "findings":
      return text.findings;
    case "unchecked":
      return text.unchecked;
    case "stale":
      return text.stale(alert.seconds);
  }
}

function Tiles({ metrics, cost }: { metrics: Metrics; cost: MetricsState["cost"] }) {
  const text = useText().operations;
  const point = metrics.points.at(-1);
  const today = cost?.days[0] ?? null;
  const writes = useMemo(
    () => today?.features.reduce((sum, { write_units }) => sum + write_units, 0),
    [today],
  );
  const hasPrice = today !== null && today.usd !== null;
  const tiles = [
    {
      label: text.tiles.sessions,
      value: units.count(point?.sessions),
      detail: text.tiles.sockets(units.count(point?.connections)),
    },
    {
      label: text.tiles.sent,
      value: units.perSecond(point?.sends_per_s),
      detail: text.tiles.rejected(units.perSecond(point?.refused_per_s)),
    },
    {
      label: text.tiles.delivery,
      value: units.millis(point?.delivery_p99_ms),
      detail: text.tiles.percentile,
    },
    {
      label: text.tiles.backlog,
      value: units.count(point?.backlog),
      detail: text.tiles.oldest(units.seconds(point?.backlog_age_s)),
    },
    {
      label: text.tiles.dynamodb,
      value: hasPrice ? units.dollars(today.usd) : units.count(writes),
      detail: hasPrice ? text.tiles.stored(units.count(today.messages)) : text.tiles.writeUnits,
    },
  ];
  return (
    <dl className={styles["tiles"]}>
      {tiles.map(({ label, value, detail }) => (
        <div key={label} className={styles["tile"]}>
          <dt>{label}</dt>
          <dd className={styles["number"]}>{value}</dd>
          <dd className={styles["more"]}>{detail}</dd>
        </div>
      ))}
    </dl>
  );
}
