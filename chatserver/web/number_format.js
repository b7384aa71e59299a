// Short number formats with units, for charts and tables. Pure.

const DASH = "–";

function plain(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits)));
}

function scaled(value, steps) {
  const [least, unit] = steps.find(([from]) => Math.abs(value) >= from) ?? steps.at(-1);
  return `${plain(value / (least || 1))}${unit}`;
}

const known = (format) => (value) => (value === null || value === undefined ? DASH : format(value));

export const count = known((value) =>
  scaled(value, [[1e9, " G"], [1e6, " M"], [1e3, " k"], [0, ""]]),
);

/** "1 message", "2 messages", "1.42 k messages". */
export const counted = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;

export const perSecond = known((value) => `${count(value)}/s`);

export const millis = known((value) =>
  value >= 1000 ? `${plain(value / 1000)} s` : `${plain(value)} ms`,
);

export const bytes = known((value) =>
  scaled(value, [[2 ** 30, " GB"], [2 ** 20, " MB"], [2 ** 10, " KB"], [0, " B"]]),
);

export const seconds = known((value) => {
  if (value >= 86_400) return `${plain(value / 86_400)} d`;
  if (value >= 3600) return `${plain(value / 3600)} h`;
  if (value >= 60) return `${plain(value / 60)} min`;
  return value > 0 && value < 1 ? millis(value * 1000) : `${plain(value)} s`;
});

export const share = known((value) => `${plain(value * 100)} %`);

/** Dollars; small amounts with two significant digits. */
export const dollars = known((value) => {
  if (value === 0) return "$0";
  if (value >= 100) return `$${Math.round(value).toLocaleString("en-US")}`;
  if (value >= 0.01) return `$${value.toFixed(2)}`;
  return `$${Number(value.toPrecision(2)).toFixed(Math.min(12, 1 - Math.floor(Math.log10(value))))}`;
});

/** The time since `ms`, such as "5 min ago". */
export function ago(ms, now) {
  if (ms === null || ms === undefined) return "never";
  const past = Math.max(0, (now - ms) / 1000);
  return past < 1 ? "just now" : `${seconds(Math.round(past))} ago`;
}
