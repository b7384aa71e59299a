// The cost of DynamoDB: current rate, today, yesterday, and by feature.

import type { Http } from "tierchat";
import { useApi } from "../data/use_load";
import { useText } from "../i18n";
import { LoadedView } from "../page/Loadable";
import { Section } from "../page/Page";
import { computeCostPerDay } from "./metrics";
import { Facts, Table } from "./Tables";
import * as units from "./units";

const DAYS_PER_MONTH = 30;

/** The tab "Cost". */
export function CostReport() {
  const text = useText().operations;
  const cost = useApi("get_cost", {});
  const overview = useApi("get_overview", { after: Date.now() - (Date.now() % 60_000) });
  const errors = { forbidden: text.adminsOnly };
  return (
    <LoadedView loaded={cost} errors={errors}>
      {(report) => <Report report={report} rates={overview.data?.units ?? []} />}
    </LoadedView>
  );
}

function Report({ report, rates }: { report: Http.CostReport; rates: readonly Http.Units[] }) {
  const text = useText().operations;
  const [today, yesterday] = report.days;
  const perDay = computeCostPerDay(rates, report);
  const formatDay = (day: Http.DayCost | undefined): string =>
    day === undefined || day.usd === null
      ? text.cost.provisioned
      : text.cost.day(units.dollars(day.usd), units.count(day.messages));
  const facts: [string, string][] = [
    [
      text.cost.rate,
      perDay === null
        ? "–"
        : text.cost.perDay(units.dollars(perDay), units.dollars(perDay * DAYS_PER_MONTH)),
    ],
    [text.cost.today, formatDay(today)],
    [text.cost.yesterday, formatDay(yesterday)],
    [text.cost.perMessage, units.dollars(today?.usd_per_message)],
    [text.cost.prices, `${report.region}, ${report.prices_as_of}`],
  ];
  return (
    <>
      <Section title={text.cost.title} about={text.cost.hint}>
        <Facts facts={facts} />
      </Section>
      {report.days
        .filter((day) => day.features.length > 0)
        .map((day) => (
          <Section key={day.day} title={text.cost.byFeature(day.day)}>
            <Features label={text.cost.byFeature(day.day)} features={day.features} />
          </Section>
        ))}
      {report.chats.length > 0 && (
        <Section title={text.cost.byChat}>
          <Features label={text.cost.byChat} features={report.chats} />
        </Section>
      )}
      {report.days.every((day) => day.features.length === 0) && <p>{text.cost.none}</p>}
    </>
  );
}

function Features({ label, features }: { label: string; features: readonly Http.FeatureCost[] }) {
  const { columns } = useText().operations.cost;
  return (
    <Table
      label={label}
      columns={Object.values(columns)}
      rows={features.map((feature) => [
        feature.feature,
        units.count(feature.write_units),
        units.count(feature.read_units),
        units.dollars(feature.usd),
      ])}
    />
  );
}
