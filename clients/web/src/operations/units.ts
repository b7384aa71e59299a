// Short numbers with units, for charts and tables. Pure functions.

const DASH = "–";

type Known = number | null | undefined;
type Format = (value: Known) => string;

function plain(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

function scaled(value: number, steps: readonly (readonly [number, string])[]): string {
  const [least, unit] = steps.find(([from]) => Math.abs(value) >= from) ?? [1, ""];
  return `${plain(value / (least || 1))}${unit}`;
}

const known =
  (format: (value: number) => string): Format =>
  (value) =>
    value === null || value === undefined ? DASH : format(value);

/** "1.42 k". */
export const count = known((value) =>
  scaled(value, [
    [1e9, " G"],
    [1e6, " M"],
    [1e3, " k"],
    [0, ""],
  ]),
);

/** "3/s". */
export const perSecond = known((value) => `${count(value)}/s`);

/** "12 ms", "1.2 s". */
export const millis = known((value) =>
  value >= 1000 ? `${plain(value / 1000)} s` : `${plain(value)} ms`,
);

/** "3.4 MB", in powers of 1,024. */
export const bytes = known((value) =>
  scaled(value, [
    [2 ** 30, " GB"],
    [2 ** 20, " MB"],
    [2 ** 10, " KB"],
    [0, " B"],
  ]),
);

/** "40 s", "5 min", "2 h", "3 d". */
export const seconds = known((value) => {
  if (value >= 86_400) return `${plain(value / 86_400)} d`;
  if (value >= 3600) return `${plain(value / 3600)} h`;
  if (value >= 60) return `${plain(value / 60)} min`;
  return value > 0 && value < 1 ? millis(value * 1000) : `${plain(value)} s`;
});

/** "12 %" for 0.12. */
export const share = known((value) => `${plain(value * 100)} %`);

/** Amounts in USD; small amounts have two significant digits. */
export const dollars = known((value) => {
  if (value === 0) return "$0";
  if (value >= 100) return `$${Math.round(value).toLocaleString("en-US")}`;
  if (value >= 0.01) return `$${value.toFixed(2)}`;
  const digits = Math.min(12, 1 - Math.floor(Math.log10(value)));
  return `$${Number(value.toPrecision(2)).toFixed(digits)}`;
});
