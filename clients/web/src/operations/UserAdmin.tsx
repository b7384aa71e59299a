// Administration of users with the operator's API key: bans, sessions, logins, passwords.

import { LogOut, UserPlus } from "lucide-react";
import { type FormEvent, type ReactNode, useState } from "react";
import type { Http, HttpClient } from "tierchat";
import { useAction } from "../data/use_action";
import { useAttempt } from "../data/use_attempt";
import { type Loaded, useLoad } from "../data/use_load";
import { usePages } from "../data/use_pages";
import {
  Avatar,
  Button,
  ConfirmDialog,
  Dialog,
  IconButton,
  Label,
  showToast,
  TextField,
} from "../design";
import { useText } from "../i18n";
import { formatDateTime, formatRelative } from "../i18n/format";
import { ActionError, LoadedView, PagesView } from "../page/Loadable";
import { Section } from "../page/Page";
import { Row, Rows } from "../page/Row";
import styles from "./UserAdmin.module.css";

/** The tab "Bans" of moderation: find a user, ban them or lift the ban. */
export function UserBan({ http }: { http: HttpClient }) {
  const text = useText().moderation;
  return (
    <FindUser http={http} about={text.bansHint}>
      {(user, loaded) => <BanButton http={http} user={user} loaded={loaded} />}
    </FindUser>
  );
}

/** The tab "Users" of operations. */
export function UserAdmin({ http }: { http: HttpClient }) {
  const text = useText().operations;
  const [isCreating, setCreating] = useState(false);
  return (
    <>
      <div className={styles["bar"]}>
        <Button icon={UserPlus} onClick={() => setCreating(true)}>
          {text.createUser}
        </Button>
      </div>
      <FindUser http={http} about={text.usersHint}>
        {(user, loaded) => (
          <>
            <UserTools http={http} user={user} loaded={loaded} />
            <Sessions http={http} user={user.user} />
            <Logins http={http} user={user.user} />
          </>
        )}
      </FindUser>
      {isCreating && <CreateUser http={http} onClose={() => setCreating(false)} />}
    </>
  );
}

interface FindUserProps {
  http: HttpClient;
  about: string;
  children: (user: Http.AnyUser, loaded: Loaded<Http.AnyUser>) => ReactNode;
}

function FindUser({ http, about, children }: FindUserProps) {
  const text = useText().moderation;
  const [typed, setTyped] = useState("");
  const [user, setUser] = useState<string | null>(null);
  const loaded = useLoad(user === null ? null : `user ${user}`, () =>
    http.call("get_user", { user: user ?? "" }),
  );
  return (
    <>
      <Section about={about}>
        <form
          role="search"
          className={styles["find"]}
          onSubmit={(event) => {
            event.preventDefault();
            const name = typed.trim().replace(/^@/, "");
            setUser(name === "" ? null : name);
          }}
        >
          <TextField
            label={text.user}
            autoComplete="off"
            autoCapitalize="none"
            spellCheck={false}
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
          <Button type="submit" variant="primary">
            {text.find}
          </Button>
        </form>
      </Section>
      {user !== null && (
        <LoadedView loaded={loaded}>
          {(data) => (
            <>
              <Section>
                <Rows label={text.user}>
                  <Row
                    picture={<Avatar id={data.user} name={data.name ?? data.user} size="l" />}
                    title={<bdi>{data.name ?? data.user}</bdi>}
                    text={`@${data.user} · ${formatDateTime(data.created)}`}
                    note={
                      <Label kind={data.is_banned ? "danger" : "plain"}>
                        {data.is_banned ? text.bannedState : text.allowedState}
                      </Label>
                    }
                  />
                </Rows>
                {data.about !== null && <p dir="auto">{data.about}</p>}
              </Section>
              {children(data, loaded)}
            </>
          )}
        </LoadedView>
      )}
    </>
  );
}

interface UserProps {
  http: HttpClient;
  user: Http.AnyUser;
  loaded: Loaded<Http.AnyUser>;
}

function BanButton({ http, user, loaded }: UserProps) {
  const text = useText().moderation;
  const attempt = useAttempt();
  const [isConfirming, setConfirming] = useState(false);
  const set = (isBanned: boolean): Promise<boolean> =>
    attempt(async () => {
      await http.call(isBanned ? "ban_user" : "unban_user", { user: user.user });
      loaded.set({ ...user, is_banned: isBanned });
      showToast(isBanned ? text.isBanned(user.user) : text.isUnbanned(user.user));
    });
  return (
    <div className={styles["bar"]}>
      {user.is_banned ? (
        <Button onClick={() => void set(false)}>{text.unban}</Button>
      ) : (
        <Button variant="danger" onClick={() => setConfirming(true)}>
          {text.ban}
        </Button>
      )}
      {isConfirming && (
        <ConfirmDialog
          title={text.banTitle(user.user)}
          message={text.banText}
          action={text.ban}
          isDangerous
          onConfirm={() => set(true)}
          onClose={() => setConfirming(false)}
        />
      )}
    </div>
  );
}

function UserTools({ http, user, loaded }: UserProps) {
  const text = useText().operations;
  const attempt = useAttempt();
  const [open, setOpen] = useState<"password" | "logout" | "erase" | null>(null);
  const close = (): void => setOpen(null);
  const endAll = (): Promise<boolean> =>
    attempt(async () => {
      await http.call("end_sessions", { user: user.user });
      showToast(text.loggedOut(user.user));
    });
  const erase = (): Promise<boolean> =>
    attempt(async () => {
      const receipt = await http.call("erase_user", { user: user.user });
      showToast(text.erasing(receipt.receipt));
    });
  return (
    <Section title={text.actions}>
      <div className={styles["tools"]}>
        <Button onClick={() => setOpen("password")}>{text.setPassword}</Button>
        <Button onClick={() => setOpen("logout")}>{text.logOutUser}</Button>
        <Button variant="danger" onClick={() => setOpen("erase")}>
          {text.erase}
        </Button>
        <BanButton http={http} user={user} loaded={loaded} />
      </div>
      {open === "password" && <SetPassword http={http} user={user.user} onClose={close} />}
      {open === "logout" && (
        <ConfirmDialog
          title={text.logOutTitle(user.user)}
          message={text.logOutText}
          action={text.logOutUser}
          onConfirm={endAll}
          onClose={close}
        />
      )}
      {open === "erase" && (
        <ConfirmDialog
          title={text.eraseTitle(user.user)}
          message={text.eraseText}
          action={text.erase}
          isDangerous
          onConfirm={erase}
          onClose={close}
        />
      )}
    </Section>
  );
}

function Sessions({ http, user }: { http: HttpClient; user: string }) {
  const text = useText().operations;
  const pages = usePages(`sessions of ${user}`, (cursor) =>
    http.call("list_sessions", { user, limit: 50, ...(cursor ? { cursor } : {}) }),
  );
  return (
    <Section title={text.sessions} about={text.sessionsHint}>
      <PagesView pages={pages} empty={<p className={styles["hint"]}>{text.noSessions}</p>}>
        {(items) => (
          <Rows label={text.sessions}>
            {items.map(({ session, gateway, device, started }) => (
              <Row
                key={session}
                title={<bdi>{device}</bdi>}
                text={`${gateway} · ${formatRelative(started)}`}
              />
            ))}
          </Rows>
        )}
      </PagesView>
    </Section>
  );
}

function Logins({ http, user }: { http: HttpClient; user: string }) {
  const text = useText().operations;
  const attempt = useAttempt();
  const pages = usePages(`logins of ${user}`, (cursor) =>
    http.call("list_devices_of_user", { user, limit: 50, ...(cursor ? { cursor } : {}) }),
  );
  const end = (device: string): void =>
    void attempt(async () => {
      await http.call("end_device_of_user", { user, device });
      pages.update((items) => items.filter((login) => login.device !== device));
    });
  return (
    <Section title={text.logins}>
      <PagesView pages={pages} empty={<p className={styles["hint"]}>{text.noLogins}</p>}>
        {(items) => (
          <Rows label={text.logins}>
            {items.map(({ device, name, seen }) => (
              <Row
                key={device}
                title={<bdi>{name ?? device}</bdi>}
                text={formatRelative(seen)}
                actions={
                  <IconButton
                    icon={LogOut}
                    label={text.endLogin(name ?? device)}
                    size="s"
                    onClick={() => end(device)}
                  />
                }
              />
            ))}
          </Rows>
        )}
      </PagesView>
    </Section>
  );
}

interface UserDialogProps {
  http: HttpClient;
  onClose: () => void;
}

function SetPassword({ http, user, onClose }: UserDialogProps & { user: string }) {
  const text = useText().operations;
  const [password, setPassword] = useState("");
  const { isBusy, error, run } = useAction();
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (!(await run(() => http.call("set_password", { user, body: { password } })))) return;
    showToast(text.passwordSet(user));
    onClose();
  };
  return (
    <Dialog title={text.setPassword} onClose={onClose}>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <TextField
          label={text.newPassword}
          type="password"
          autoComplete="new-password"
          minLength={8}
          required
          autoFocus
          value={password}
          onChange={(event) => setPassword(event.target.value)}
        />
        <ActionError error={error} />
        <Button type="submit" variant="primary" isBusy={isBusy}>
          {text.setPassword}
        </Button>
      </form>
    </Dialog>
  );
}

function CreateUser({ http, onClose }: UserDialogProps) {
  const text = useText();
  const [user, setUser] = useState("");
  const [name, setName] = useState("");
  const { isBusy, error, run } = useAction();
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const optional = name.trim() === "" ? {} : { name: name.trim() };
    const body = { user: user.trim(), ...optional };
    if (!(await run(() => http.call("create_user", { body })))) return;
    showToast(text.operations.userCreated(body.user));
    onClose();
  };
  return (
    <Dialog title={text.operations.createUser} onClose={onClose}>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <TextField
          label={text.moderation.user}
          required
          autoFocus
          autoCapitalize="none"
          spellCheck={false}
          value={user}
          onChange={(event) => setUser(event.target.value)}
        />
        <TextField
          label={text.operations.displayName}
          maxLength={80}
          value={name}
          onChange={(event) => setName(event.target.value)}
        />
        <ActionError error={error} />
        <Button type="submit" variant="primary" isBusy={isBusy}>
          {text.operations.createUser}
        </Button>
      </form>
    </Dialog>
  );
}
