// Layout of the images of one message: rows of equal width, with sizes known before they load.

/** An image's size in pixels; unknown sizes count as square. */
export interface Size {
  width?: number | null;
  height?: number | null;
}

/** Position and size of an image, as shares of the gallery's width: 0 to 1. */
export interface Place {
  x: number;
  y: number;
  width: number;
  height: number;
}

const RATIO_MIN = 0.5;
const RATIO_MAX = 2.4;
/** Maximum number of shown images; the last one shows how many more there are. */
export const SHOWN_MAX = 6;
const PER_ROW = [0, 1, 2, 3, 2, 3, 3]; // images in the first row, by the total number

/** Return the aspect ratio, width by height, within bounds. */
export function ratioOf({ width, height }: Size): number {
  if (!width || !height) return 1;
  return Math.min(RATIO_MAX, Math.max(RATIO_MIN, width / height));
}

/** Return the places of up to {@link SHOWN_MAX} images, and the height relative to the width. */
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
