// Privacy: discoverability, blocked users, data export, and account deletion.

import { type FormEvent, useEffect, useState } from "react";
import { ChatError, type Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAction } from "../data/use_action";
import { useAttempt } from "../data/use_attempt";
import { useApi, useLoad } from "../data/use_load";
import { Button, Dialog, ErrorState, SkeletonRows, Switch, TextField } from "../design";
import { usePerson } from "../directory/directory";
import { PersonAvatar, PersonName } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { setMe, useMe } from "../session/me";
import { useOpenSession, useSession } from "../session/session_context";
import styles from "./PrivacyPage.module.css";
import { FormMessage, SettingPage, SettingSection } from "./SettingPage";

const SHOWN_MAX = 200;
const POLL_MS = 2_000;

/** The page "privacy". */
export default function PrivacyPage() {
  const text = useText();
  const { isAccount } = useOpenSession();
  return (
    <SettingPage title={text.settings.privacy}>
      <SettingSection title={text.settings.discoverable}>
        <Discoverable />
      </SettingSection>
      <SettingSection title={text.settings.blocked}>
        <BlockedUsers />
      </SettingSection>
      <SettingSection title={text.settings.export} hint={text.settings.exportHint}>
        <DataExport />
      </SettingSection>
      {isAccount && (
        <SettingSection title={text.settings.erase} hint={text.settings.eraseHint}>
          <Erasure />
        </SettingSection>
      )}
    </SettingPage>
  );
}

function Discoverable() {
  const text = useText();
  const client = useClient();
  const me = useMe();
  const [requested, setRequested] = useState(false);
  const { isBusy, error, run } = useAction();
  const change = (discoverable: boolean): Promise<boolean> => {
    setRequested(discoverable);
    return run(async () => setMe(await client.http.call("change_me", { body: { discoverable } })));
  };
  return (
    <>
      <Switch
        label={text.settings.discoverableLabel}
        hint={text.settings.discoverableHint}
        isOn={isBusy ? requested : (me?.discoverable ?? false)}
        isDisabled={me === null || isBusy}
        onChange={(isOn) => void change(isOn)}
      />
      <FormMessage error={error} />
    </>
  );
}

function BlockedUsers() {
  const text = useText();
  const client = useClient();
  const attempt = useAttempt();
  const { data, error, reload } = useApi("list_blocks", { limit: SHOWN_MAX });
  if (error !== null) return <ErrorState message={getErrorText(error)} onRetry={reload} />;
  if (data === null) return <SkeletonRows count={1} />;
  if (data.items.length === 0)
    return <p className={styles["note"]}>{text.settings.blockedEmpty}</p>;
  const unblock = async (user: string): Promise<void> => {
    await attempt(() => client.unblock(user));
    reload();
  };
  return (
    <ul>
      {data.items.map(({ user }) => (
        <li key={user} className={styles["user"]}>
          <PersonAvatar user={user} />
          <PersonName user={user} />
          <UnblockButton user={user} onClick={() => void unblock(user)} />
        </li>
      ))}
    </ul>
  );
}

function UnblockButton({ user, onClick }: { user: string; onClick: () => void }) {
  const text = useText();
  const { name } = usePerson(user);
  return (
    <Button aria-label={text.settings.unblockUser(name)} onClick={onClick}>
      {text.settings.unblock}
    </Button>
  );
}

function DataExport() {
  const text = useText();
  const client = useClient();
  const { isBusy, error, run } = useAction();
  const load = async (): Promise<Http.Export | null> => {
    try {
      return await client.http.call("get_export", {});
    } catch (problem) {
      if (problem instanceof ChatError && problem.code === "not_found") return null;
      throw problem;
    }
  };
  const { data, reload, set } = useLoad("export", load);
  const isRunning = data?.state === "waiting" || data?.state === "running";
  useEffect(() => {
    if (!isRunning) return undefined;
    const timer = setTimeout(reload, POLL_MS);
    return () => clearTimeout(timer);
  }, [isRunning, data, reload]);
  const start = (): void => {
    void run(async () => set(await client.http.call("start_export", {})));
  };
  const isLimitReached = error?.includes("daily limit") === true;
  return (
    <>
      <p role="status" className={styles["note"]}>
        {isRunning && text.settings.exportRunning(Math.round((data?.progress ?? 0) * 100))}
        {data?.state === "ready" && text.settings.exportReady}
        {data?.state === "failed" && text.settings.exportFailed}
      </p>
      {data?.state === "ready" && data.url != null && (
        <a href={data.url} download>
          {text.settings.download}
        </a>
      )}
      <Button isBusy={isBusy} disabled={isRunning} onClick={start}>
        {text.settings.startExport}
      </Button>
      <FormMessage error={isLimitReached ? text.settings.exportLimit : error} />
    </>
  );
}

function Erasure() {
  const text = useText();
  const [isOpen, setOpen] = useState(false);
  return (
    <>
      <Button variant="danger" onClick={() => setOpen(true)}>
        {text.settings.eraseAction}
      </Button>
      {isOpen && <EraseDialog onClose={() => setOpen(false)} />}
    </>
  );
}

function EraseDialog({ onClose }: { onClose: () => void }) {
  const text = useText();
  const client = useClient();
  const session = useSession();
  const [password, setPassword] = useState("");
  const [error, setError] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await session.logOut(() => client.http.call("erase_me", { body: { password } }), "erased");
    } catch (problem) {
      setError(getErrorText(problem, { "password: wrong password": text.settings.passwordWrong }));
      setBusy(false);
    }
  };
  return (
    <Dialog
      title={text.settings.erase}
      onClose={onClose}
      footer={
        <>
          <Button onClick={onClose}>{text.common.cancel}</Button>
          <Button type="submit" form="erase" variant="danger" isBusy={isBusy}>
            {text.settings.eraseAction}
          </Button>
        </>
      }
    >
      <form id="erase" className={styles["form"]} onSubmit={(event) => void submit(event)}>
        <p>{text.settings.eraseMessage}</p>
        <TextField
          label={text.settings.erasePassword}
          type="password"
          autoComplete="current-password"
          required
          error={error}
          value={password}
          onChange={(event) => setPassword(event.target.value)}
        />
      </form>
    </Dialog>
  );
}
