// Runs before the first paint, so that a chosen theme does not flash. Not a module on purpose:
// modules wait for the document.
try {
  const theme = JSON.parse(localStorage.getItem("chat.theme"));
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // No storage, no choice: the system's theme it is.
}
