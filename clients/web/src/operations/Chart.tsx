// A chart of the last ten minutes, with uPlot: for pointer and arrow keys, and as a table.

import { type KeyboardEvent, useEffect, useRef, useState } from "react";
import type { Http } from "tierchat";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { useText } from "../i18n";
import styles from "./Chart.module.css";
import type { ChartInfo } from "./charts";
import { formatClock } from "./clock";
import { buildColumns, listTableRows, splitLonePoints } from "./metrics";

const HEIGHT = 140;
const COLORS = ["--chart-1", "--chart-2", "--chart-3"] as const;

interface ChartProps {
  chart: ChartInfo;
  points: readonly Http.Point[];
  everyMs: number;
}

/** A chart with its current values. */
export function Chart({ chart, points, everyMs }: ChartProps) {
  const text = useText().operations;
  const container = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [index, setIndex] = useState<number | null>(null); // index of the point at the cursor
  const data = buildColumns(
    points,
    chart.lines.map(({ key }) => key),
    everyMs,
  );
  const plotted = splitLonePoints(data);
  const latest = useRef(plotted);
  latest.current = plotted;
  const last = data[0].length - 1;
  const shown = index === null ? last : Math.min(index, last);
  const formatValue = (line: number, point: number): string =>
    chart.format(data[line + 1]?.[point]);
  const describePoint = (point: number): string =>
    chart.lines
      .map(({ label }, line) => `${text.lines[label]} ${formatValue(line, point)}`)
      .join(", ");

  useEffect(() => {
    const element = container.current;
    if (element === null) return;
    const created = new uPlot(buildOptions(chart, element, setIndex), latest.current, element);
    plot.current = created;
    const resizeObserver = new ResizeObserver(() => {
      created.setSize({ width: element.clientWidth, height: HEIGHT });
    });
    resizeObserver.observe(element);
    const redraw = (): void => created.redraw(false, true);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    scheme.addEventListener("change", redraw);
    const themeObserver = new MutationObserver(redraw);
    themeObserver.observe(document.documentElement, { attributeFilter: ["data-theme"] });
    return () => {
      resizeObserver.disconnect();
      scheme.removeEventListener("change", redraw);
      themeObserver.disconnect();
      created.destroy();
      plot.current = null;
    };
  }, [chart]);

  useEffect(() => {
    plot.current?.setData(latest.current);
  }, [points]);

  const onKeyDown = (event: KeyboardEvent): void => {
    const targets: Record<string, number | null> = {
      ArrowLeft: Math.max(0, shown - 1),
      ArrowRight: Math.min(last, shown + 1),
      Home: 0,
      End: last,
      Escape: null,
    };
    const next = targets[event.key];
    if (next === undefined) return;
    event.preventDefault();
    setIndex(next);
    const time = next === null ? undefined : data[0][next];
    const left = time === undefined ? -10 : (plot.current?.valToPos(time, "x") ?? -10);
    plot.current?.setCursor({ left, top: time === undefined ? -10 : HEIGHT / 2 }, false);
  };
  const { title, about } = text.charts[chart.id];
  const time = data[0][shown];
  return (
    <figure className={styles["chart"]} aria-label={title}>
      <figcaption className={styles["caption"]}>
        <h2>{title}</h2>
        <p>{about}</p>
      </figcaption>
      <p className={styles["values"]} aria-hidden>
        {chart.lines.map(({ key, label }, line) => (
          <span key={key} className={styles["value"]} data-line={line}>
            {text.lines[label]} <strong>{formatValue(line, shown)}</strong>
          </span>
        ))}
        <span className={styles["time"]}>
          {index !== null && time !== undefined ? formatClock(time * 1000) : ""}
        </span>
      </p>
      <div
        ref={container}
        className={styles["plot"]}
        role="slider"
        tabIndex={0}
        aria-label={title}
        aria-orientation="horizontal"
        aria-valuemin={0}
        aria-valuemax={Math.max(0, last)}
        aria-valuenow={Math.max(0, shown)}
        aria-valuetext={
          time === undefined
            ? text.noPoints
            : `${formatClock(time * 1000)}: ${describePoint(shown)}`
        }
        onKeyDown={onKeyDown}
        onBlur={() => setIndex(null)}
      />
      <details className={styles["table"]}>
        <summary>{text.asTable}</summary>
        <div
          className={styles["scroll"]}
          tabIndex={0}
          role="region"
          aria-label={text.tableOf(title)}
        >
          <table>
            <thead>
              <tr>
                <th scope="col">{text.time}</th>
                {chart.lines.map(({ key, label }) => (
                  <th key={key} scope="col">
                    {text.lines[label]}
                  </th>
                ))}
              </tr>
            </thead>
            <tbody>
              {listTableRows(points).map((point) => (
                <tr key={point.at_ms}>
                  <th scope="row">{formatClock(point.at_ms)}</th>
                  {chart.lines.map(({ key }) => (
                    <td key={key}>{chart.format(point[key])}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

function computeColor(name: string): string {
  // A canvas does not support light-dark(), so an element computes the color.
  const probe = document.createElement("span");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const computed = getComputedStyle(probe).color;
  probe.remove();
  return computed;
}

function buildOptions(
  chart: ChartInfo,
  element: HTMLElement,
  onIndex: (index: number | null) => void,
): uPlot.Options {
  const font = `11px ${getComputedStyle(element).fontFamily}`;
  const axis = {
    stroke: () => computeColor("--text-muted"),
    font,
    ticks: { show: false },
    grid: { stroke: () => computeColor("--border"), width: 1 },
  };
  const colors = chart.lines.map((_, line) => () => computeColor(COLORS[line] ?? COLORS[0]));
  return {
    width: element.clientWidth,
    height: HEIGHT,
    padding: [8, 12, 0, 0],
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: {
      y: { range: (_, __, max) => [0, Math.max(chart.axisMin, (max ?? 0) * 1.1)] },
    },
    axes: [
      {
        ...axis,
        grid: { show: false },
        size: 24,
        space: 80,
        values: (_, splits) => splits.map((split) => formatClock(split * 1000, "minutes")),
      },
      {
        ...axis,
        size: 52,
        space: 36,
        ...(chart.isBinary === true ? { incrs: BINARY_STEPS } : {}),
        values: (_, splits) => splits.map((split) => chart.format(split)),
      },
    ],
    series: [
      {},
      ...colors.map((stroke) => ({ stroke, width: 2, points: { show: false } })),
      ...colors.map((stroke) => ({
        stroke,
        paths: () => null,
        points: { show: true, size: 5, stroke, fill: stroke },
      })),
    ],
    hooks: { setCursor: [({ cursor }) => onIndex(cursor.idx ?? null)] },
  };
}

const BINARY_STEPS = Array.from({ length: 32 }, (_, power) => 2 ** power);
