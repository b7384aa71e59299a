// Layout of the images of one message: rows of equal width, with sizes known before they load.

/** An image's size in pixels; unknown sizes count as square. */
export interface Size {
  width?: number | null;
  height?: number | null;
}

/** A place in the gallery, as shares of its width: 0 to 1. */
export interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

const RATIO_MIN = 0.5;
const RATIO_MAX = 2.4;
/** Images shown; the last one has the number of the others. */
export const SHOWN_MAX = 6;
const PER_ROW = [0, 1, 2, 3, 2, 3, 3]; // images in the first row, by their number

/** Return width by height, within bounds. */
export function ratioOf({ width, height }: Size): number {
  if (!width || !height) return 1;
  return Math.min(RATIO_MAX, Math.max(RATIO_MIN, width / height));
}

/** Return the places of up to {@link SHOWN_MAX} images, and the height of all: 1 is the width. */
export function computeLayout(sizes: readonly Size[]): { places: Place[]; height: number } {
  const ratios = sizes.slice(0, SHOWN_MAX).map(ratioOf);
  const first = PER_ROW[ratios.length] ?? 3;
  const rows = [ratios.slice(0, first), ratios.slice(first)].filter((row) => row.length > 0);
  const places: Place[] = [];
  let y = 0;
  for (const row of rows) {
    const total = row.reduce((sum, ratio) => sum + ratio, 0);
    const height = Math.min(1 / total, row.length === 1 ? 1.25 : 0.75);
    let x = 0;
    for (const ratio of row) {
      places.push({ x, y, width: ratio / total, height });
      x += ratio / total;
    }
    y += height;
  }
  return { places, height: y };
}
