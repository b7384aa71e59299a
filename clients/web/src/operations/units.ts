// Short numbers with units, for charts and tables. Pure functions.

const DASH = "–";

type Value = number | null | undefined;
type Format = (value: Value) => string;

function formatPlain(value: number): string {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

function formatScaled(value: number, steps: readonly (readonly [number, string])[]): string {
  const [divisor, unit] = steps.find(([minimum]) => Math.abs(value) >= minimum) ?? [1, ""];
  return `${formatPlain(value / (divisor || 1))}${unit}`;
}

const orDash =
  (format: (value: number) => string): Format =>
  (value) =>
    value === null || value === undefined ? DASH : format(value);

/** Format a number, such as "1.42 k". */
export const count = orDash((value) =>
  formatScaled(value, [
    [1e9, " G"],
    [1e6, " M"],
    [1e3, " k"],
    [0, ""],
  ]),
);

/** Format a rate, such as "3/s". */
export const perSecond = orDash((value) => `${count(value)}/s`);

/** Format milliseconds, such as "12 ms" and "1.2 s". */
export const millis = orDash((value) =>
  value >= 1000 ? `${formatPlain(value / 1000)} s` : `${formatPlain(value)} ms`,
);

/** Format bytes, such as "3.4 MB", in powers of 1,024. */
export const bytes = orDash((value) =>
  formatScaled(value, [
    [2 ** 30, " GB"],
    [2 ** 20, " MB"],
    [2 ** 10, " KB"],
    [0, " B"],
  ]),
);

/** Format seconds, such as "40 s", "5 min", "2 h" and "3 d". */
export const seconds = orDash((value) => {
  if (value >= 86_400) return `${formatPlain(value / 86_400)} d`;
  if (value >= 3600) return `${formatPlain(value / 3600)} h`;
  if (value >= 60) return `${formatPlain(value / 60)} min`;
  return value > 0 && value < 1 ? millis(value * 1000) : `${formatPlain(value)} s`;
});

/** Format a fraction as a percentage, such as "12 %". */
export const share = orDash((value) => `${formatPlain(value * 100)} %`);

/** Format an amount in USD; small amounts have two significant digits. */
export const dollars = orDash((value) => {
  if (value === 0) return "$0";
  if (value >= 100) return `$${Math.round(value).toLocaleString("en-US")}`;
  if (value >= 0.01) return `$${value.toFixed(2)}`;
  const digits = Math.min(12, 1 - Math.floor(Math.log10(value)));
  return `$${Number(value.toPrecision(2)).toFixed(digits)}`;
});
