import type { Catalog } from "../catalog";

export const search: Catalog["search"] = {
  title: "Suche",
  label: "Nachrichten durchsuchen",
  placeholder: "Nachrichten durchsuchen",
  clear: "Suche leeren",
  add: "Filter hinzufügen",
  from: "Von",
  fromMe: "mir",
  in: "Im Chat",
  has: "Mit Dateien",
  after: "Seit",
  before: "Vor",
  chip: (name, value) => `${name}: ${value}`,
  remove: (chip) => `Filter ${chip} entfernen`,
  fromHint: "Benutzername",
  order: "Sortierung",
  newest: "Neueste",
  relevance: "Relevanz",
  results: "Suchergebnisse",
  searching: "Suche läuft …",
  found: (count, hasMore) =>
    `${count}${hasMore ? "+" : ""} ${count === 1 && !hasMore ? "Nachricht" : "Nachrichten"} ` +
    `gefunden`,
  none: "Keine Nachrichten gefunden",
  noneHint: "Prüfe die Schreibweise oder entferne einen Filter.",
  backToChat: "Zurück zum Chat",
  start: "Finde jede Nachricht",
  startHint:
    "Gib Wörter oder eine „Phrase“ ein und grenze nach Person, Chat, Dateien oder Datum ein.",
  unavailable: "Die Suche ist auf diesem Server nicht eingerichtet.",
  file: "Datei",
};
