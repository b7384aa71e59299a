import type { Catalog } from "../catalog";

export const session: Catalog["session"] = {
  welcome: "Willkommen bei tierchat",
  lead: "Melde dich an, um zu deinen Chats zu gelangen.",
  leadDemo: "Wähle einen Demo-Benutzer, um fortzufahren.",
  ended: "Deine Sitzung ist beendet. Melde dich erneut an. Deine Entwürfe sind gespeichert.",
  erased: "Dein Konto wurde gelöscht.",
  username: "Benutzername",
  password: "Passwort",
  usernameHint: "3 bis 32 Zeichen: a–z, 0–9, „_“ und „-“.",
  passwordHint: "Mindestens 8 Zeichen.",
  logIn: "Anmelden",
  logOut: "Abmelden",
  createAccount: "Konto erstellen",
  newHere: "Neu hier? Konto erstellen",
  haveAccount: "Schon ein Konto? Anmelden",
  enterUsername: "Gib deinen Benutzernamen ein.",
  enterPassword: "Gib dein Passwort ein.",
  wrongPassword: "Benutzername oder Passwort ist falsch.",
  nameTaken: "Dieser Benutzername ist schon vergeben.",
  continueAs: (user) => `Weiter als ${user}`,
  demoHint: "Zum Ausprobieren kannst du in einem zweiten Fenster als jemand anderes weitermachen.",
  usePassword: "Mit Passwort anmelden",
  useToken: "Mit Zugangstoken anmelden",
  token: "Zugangstoken",
  tokenHint:
    "Das Token kommt vom Anmeldedienst deiner Organisation. Es bleibt, bis du diesen Tab schließt.",
  enterToken: "Gib ein Zugangstoken ein.",
  tokenRefused: "Das Token wurde abgelehnt. Ist es vollständig und noch gültig?",
  notStored:
    "Dieser Browser speichert keine Daten dieser Website. Du kannst chatten, aber Entwürfe, " +
    "ungesendete Nachrichten und möglicherweise die Anmeldung gehen verloren, wenn du diesen " +
    "Tab schließt.",
  unreachable: "Keine Verbindung",
  unreachableHint: "Der Server ist nicht erreichbar. Prüfe, ob er läuft, und versuche es erneut.",
  logOutTitle: "Abmelden?",
  logOutMessage: "Nachrichten und Entwürfe werden aus diesem Browser entfernt.",
  logOutPending: (count) =>
    count === 1
      ? "1 Nachricht wurde noch nicht gesendet und geht verloren."
      : `${count} Nachrichten wurden noch nicht gesendet und gehen verloren.`,
};
