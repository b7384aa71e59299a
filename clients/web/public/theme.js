// Runs before the first paint, so that the chosen theme and language apply without a flash.
try {
  const { theme, language } = JSON.parse(localStorage.getItem("tierchat.appearance") ?? "{}");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  if (typeof language === "string") document.documentElement.lang = language;
} catch {
  // Without storage, the settings of the system apply.
}
