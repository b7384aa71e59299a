// A short time, with date and time of day as the tooltip.

import { formatDateTime, formatShort } from "../i18n/format";

/** A point in time, in Unix milliseconds. */
export function Time({ ms, className }: { ms: number; className?: string | undefined }) {
  return (
    <time
      dateTime={new Date(ms).toISOString()}
      data-tooltip={formatDateTime(ms)}
      className={className}
    >
      {formatShort(ms)}
    </time>
  );
}
