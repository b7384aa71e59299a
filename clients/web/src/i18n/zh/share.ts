import type { Catalog } from "../catalog";

export const share: Catalog["share"] = {
  title: "分享到",
  files: (count) => `${count} 个文件`,
  nothing: "没有可分享的内容。",
};
