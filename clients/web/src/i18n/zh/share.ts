import type { Catalog } from "../catalog";

export const share: Catalog["share"] = {
  title: "分享到",
  files: (count) => `${count} 个文件`,
  nothing: "没有可分享的内容。",
  refused: "请打开已安装的应用来分享。不接受来自其他网站的内容。",
  missed: "应用尚未准备好接收。请重新分享。",
  anotherChat: "选择其他聊天",
};
