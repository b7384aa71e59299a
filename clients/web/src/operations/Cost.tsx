// The cost of DynamoDB: current rate, today, yesterday, and by feature.

import type { Http } from "tierchat";
import { useApi } from "../data/use_load";
import { useText } from "../i18n";
import { TextWithCode } from "../i18n/TextWithCode";
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
      <Section title={text.cost.title} about={<TextWithCode>{text.cost.hint}</TextWithCode>}>
        <Facts facts={facts} />
      </Section>
      {report.days
        .filter((day) => day.features.length > 0)
        .map((day) => (
          <Section key={day.day} title={text.cost.byFeature(day.day)}>
            <Costs
              label={text.cost.byFeature(day.day)}
              first={text.cost.columns.feature}
              costs={day.features}
            />
          </Section>
        ))}
      {report.chats.length > 0 && (
        <Section title={text.cost.byChat}>
          <Costs label={text.cost.byChat} first={text.cost.columns.chat} costs={report.chats} />
        </Section>
      )}
      {report.days.every((day) => day.features.length === 0) && <p>{text.cost.none}</p>}
    </>
  );
}

interface CostsProps {
  label: string;
  /** The heading of the first column. */
  first: string;
  costs: readonly Http.FeatureCost[];
}

function Costs({ label, first, costs }: CostsProps) {
  const { write, read, usd } = useText().operations.cost.columns;
  return (
    <Table
      label={label}
      columns={[first, write, read, usd]}
      rows={costs.map((cost) => [
        cost.feature,
        units.count(cost.write_units),
        units.count(cost.read_units),
        units.dollars(cost.usd),
      ])}
    />
  );
}
