/** Login and logout. */
export const session = {
  welcome: "Welcome to tierchat",
  lead: "Log in to your chats.",
  leadDemo: "Choose a demo user to continue.",
  ended: "Your session has ended. Log in again to continue. Your drafts are saved.",
  erased: "Your account was deleted.",
  username: "Username",
  password: "Password",
  usernameHint: "3 to 32 characters: a–z, 0–9, “_” and “-”.",
  passwordHint: "At least 8 characters.",
  logIn: "Log in",
  logOut: "Log out",
  createAccount: "Create account",
  newHere: "New here? Create an account",
  haveAccount: "Already have an account? Log in",
  enterUsername: "Enter your username.",
  enterPassword: "Enter your password.",
  wrongPassword: "Wrong username or password.",
  nameTaken: "This username is already taken.",
  continueAs: (user: string) => `Continue as ${user}`,
  demoHint: "To try it out, continue as another user in a second window.",
  usePassword: "Use a password",
  useToken: "Use an access token",
  token: "Access token",
  tokenHint:
    "Get a token from your organization's sign-in service. It is kept until you close this tab.",
  enterToken: "Enter an access token.",
  tokenRefused: "The token was not accepted. Check that it is complete and has not expired.",
  notStored:
    "This browser doesn't store data for this site. You can chat, but drafts, unsent messages " +
    "and possibly your login are lost when you close this tab.",
  unreachable: "Can't connect",
  unreachableHint: "Can't reach the server. Check that it is running, then try again.",
  logOutTitle: "Log out?",
  logOutMessage: "Messages and drafts are removed from this browser.",
  logOutPending: (count: number) =>
    count === 1
      ? "1 message hasn't been sent yet and will be lost."
      : `${count} messages haven't been sent yet and will be lost.`,
} as const;
