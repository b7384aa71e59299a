// Login: as a demo user (development server), with username and password, or with a token.

import { type FormEvent, useRef, useState } from "react";
import type { Http } from "tierchat";
import { Avatar, Button, TextField } from "../design";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import type { LogoutNotice } from "../session/session";
import { useSession } from "../session/session_context";
import styles from "./LoginPage.module.css";

interface LoginPageProps {
  config: Http.ClientConfig;
  notice: LogoutNotice;
}

/** The page for users who are not logged in. */
export function LoginPage({ config, notice }: LoginPageProps) {
  const text = useText();
  const hasDemo = config.demo_users.length > 0;
  const hasAccounts = config.local_accounts === true;
  const lead = hasDemo ? text.session.leadDemo : text.session.lead;
  return (
    <main className={styles["page"]}>
      <div className={styles["card"]}>
        <img src="/icon.svg" alt="" width={56} height={56} />
        <h1>{text.session.welcome}</h1>
        <p className={styles["lead"]} role={notice === null ? undefined : "alert"}>
          {notice === null ? lead : text.session[notice]}
        </p>
        {hasDemo && <DemoUsers users={config.demo_users} />}
        {hasAccounts && (
          <More label={text.session.usePassword} isOpen={!hasDemo}>
            <AccountForm canRegister={config.registration === true} />
          </More>
        )}
        <More label={text.session.useToken} isOpen={!hasDemo && !hasAccounts}>
          <TokenForm />
        </More>
      </div>
    </main>
  );
}

function More({
  label,
  isOpen,
  children,
}: {
  label: string;
  isOpen: boolean;
  children: React.ReactNode;
}) {
  if (isOpen) return children;
  return (
    <details className={styles["more"]}>
      <summary>{label}</summary>
      {children}
    </details>
  );
}

function DemoUsers({ users }: { users: readonly string[] }) {
  const text = useText();
  const session = useSession();
  const [error, setError] = useState("");
  const [busy, setBusy] = useState<string | null>(null);
  const choose = async (user: string): Promise<void> => {
    setBusy(user);
    setError("");
    try {
      await session.logInAsDemo(user);
    } catch (problem) {
      setError(getErrorText(problem));
      setBusy(null);
    }
  };
  return (
    <>
      {error !== "" && (
        <p className={styles["error"]} role="alert">
          {error}
        </p>
      )}
      <ul className={styles["users"]}>
        {users.map((user) => (
          <li key={user}>
            <button type="button" disabled={busy !== null} onClick={() => void choose(user)}>
              <Avatar id={user} name={user} />
              {text.session.continueAs(user)}
            </button>
          </li>
        ))}
      </ul>
      <p className={styles["hint"]}>{text.session.demoHint}</p>
    </>
  );
}

function AccountForm({ canRegister }: { canRegister: boolean }) {
  const text = useText();
  const session = useSession();
  const [isNew, setNew] = useState(false);
  const [user, setUser] = useState("");
  const [password, setPassword] = useState("");
  const [error, setError] = useState<{ field: "user" | "password"; message: string } | null>(null);
  const [isBusy, setBusy] = useState(false);
  const userInput = useRef<HTMLInputElement>(null);
  const passwordInput = useRef<HTMLInputElement>(null);
  const fail = (field: "user" | "password", message: string): void => {
    setError({ field, message });
    (field === "user" ? userInput : passwordInput).current?.focus();
  };
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const name = user.trim();
    if (name === "") return fail("user", text.session.enterUsername);
    if (password === "") return fail("password", text.session.enterPassword);
    setError(null);
    setBusy(true);
    try {
      await (isNew ? session.register(name, password) : session.logIn(name, password));
    } catch (problem) {
      const message = getErrorText(problem, {
        "user name or password is wrong": text.session.wrongPassword,
        "user: this name is already taken": text.session.nameTaken,
      });
      fail(String(problem).includes("user:") ? "user" : "password", message);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form className={styles["form"]} noValidate onSubmit={(event) => void submit(event)}>
      <TextField
        ref={userInput}
        label={text.session.username}
        hint={isNew ? text.session.usernameHint : undefined}
        error={error?.field === "user" ? error.message : undefined}
        value={user}
        onChange={(event) => setUser(event.target.value)}
        autoComplete="username"
        autoCapitalize="none"
        spellCheck={false}
        maxLength={64}
      />
      <TextField
        ref={passwordInput}
        label={text.session.password}
        type="password"
        hint={isNew ? text.session.passwordHint : undefined}
        error={error?.field === "password" ? error.message : undefined}
        value={password}
        onChange={(event) => setPassword(event.target.value)}
        autoComplete={isNew ? "new-password" : "current-password"}
        maxLength={512}
      />
      <Button type="submit" variant="primary" isBusy={isBusy}>
        {isNew ? text.session.createAccount : text.session.logIn}
      </Button>
      {canRegister && (
        <Button
          variant="quiet"
          onClick={() => {
            setNew(!isNew);
            setError(null);
            userInput.current?.focus();
          }}
        >
          {isNew ? text.session.haveAccount : text.session.newHere}
        </Button>
      )}
    </form>
  );
}

function TokenForm() {
  const text = useText();
  const session = useSession();
  const [token, setToken] = useState("");
  const [error, setError] = useState("");
  const submit = (event: FormEvent): void => {
    event.preventDefault();
    if (token.trim() === "") setError(text.session.enterToken);
    else void session.logInWithToken(token.trim());
  };
  return (
    <form className={styles["form"]} noValidate onSubmit={submit}>
      <TextField
        label={text.session.token}
        type="password"
        hint={text.session.tokenHint}
        error={error}
        value={token}
        onChange={(event) => setToken(event.target.value)}
        autoComplete="off"
        spellCheck={false}
        maxLength={4096}
      />
      <Button type="submit">{text.session.logIn}</Button>
    </form>
  );
}
