import type { Catalog } from "../catalog";

export const share: Catalog["share"] = {
  title: "Teilen mit",
  files: (count) => (count === 1 ? "1 Datei" : `${count} Dateien`),
  nothing: "Es gibt nichts zu teilen.",
  refused:
    "Öffne zum Teilen die installierte App. Inhalte von anderen Websites werden nicht angenommen.",
  missed: "Die App war noch nicht bereit. Bitte teile den Inhalt noch einmal.",
  anotherChat: "Anderen Chat auswählen",
};
