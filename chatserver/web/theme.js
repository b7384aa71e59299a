// Runs before the first paint, to avoid a flash of the wrong theme. Not a module on purpose: modules
// are deferred.
try {
  const theme = JSON.parse(localStorage.getItem("chat.theme"));
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // Without storage, the system's theme applies.
}
