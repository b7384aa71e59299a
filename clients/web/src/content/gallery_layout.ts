// Layout of the images of one message: rows of equal width. The sizes are known before the images
// are loaded.

/** An image's size in pixels; unknown sizes count as square. */
export interface Size {
  width?: number | null;
  height?: number | null;
}

/** Position and size of an image, relative to the gallery's width: 0 to 1. */
export interface TilePosition {
  x: number;
  y: number;
  width: number;
  height: number;
}

const RATIO_MIN = 0.5;
const RATIO_MAX = 2.4;
/** Maximum number of shown images; the last one shows the number of further images. */
export const SHOWN_MAX = 6;
const FIRST_ROW = [0, 1, 2, 3, 2, 3, 3]; // images in the first row, by the total number

/** Return the aspect ratio, width by height, within bounds. */
export function getRatio({ width, height }: Size): number {
  if (!width || !height) return 1;
  return Math.min(RATIO_MAX, Math.max(RATIO_MIN, width / height));
}

/** Return the positions of up to {@link SHOWN_MAX} images, and the gallery's relative height. */
export function computeLayout(sizes: readonly Size[]): {
  positions: TilePosition[];
  height: number;
} {
  const ratios = sizes.slice(0, SHOWN_MAX).map(getRatio);
  const first = FIRST_ROW[ratios.length] ?? 3;
  const rows = [ratios.slice(0, first), ratios.slice(first)].filter((row) => row.length > 0);
  const positions: TilePosition[] = [];
  let y = 0;
  for (const row of rows) {
    const total = row.reduce((sum, ratio) => sum + ratio, 0);
    const height = Math.min(1 / total, row.length === 1 ? 1.25 : 0.75);
    let x = 0;
    for (const ratio of row) {
      positions.push({ x, y, width: ratio / total, height });
      x += ratio / total;
    }
    y += height;
  }
  return { positions, height: y };
}
