// The user's own name, description and picture.

import { type ChangeEvent, type FormEvent, useRef, useState } from "react";
import { useClient } from "tierchat/react";
import { useAction } from "../data/use_action";
import { useAttempt } from "../data/use_attempt";
import { useSaveOnLeave } from "../data/use_save_on_leave";
import { Button, showToast, TextArea, TextField } from "../design";
import { getDirectory, usePerson } from "../directory/directory";
import { PersonAvatar } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { formatBytes } from "../i18n/format";
import { setMe, useMe } from "../session/me";
import { useOpenSession } from "../session/session_context";
import styles from "./EditProfilePage.module.css";
import { FormMessage, SettingPage, SettingSection } from "./SettingPage";

const NAME_MAX = 200;
const ABOUT_MAX = 500;

/** The page "profile". */
export default function EditProfilePage() {
  const text = useText();
  const { isAccount } = useOpenSession();
  return (
    <SettingPage title={text.settings.profile}>
      <SettingSection title={text.settings.picture} hint={text.settings.pictureHint}>
        <Picture />
      </SettingSection>
      <SettingSection hint={text.settings.profileHint}>
        <ProfileForm key={String(isAccount)} />
      </SettingSection>
    </SettingPage>
  );
}

function ProfileForm() {
  const text = useText();
  const client = useClient();
  const me = useMe();
  const [changes, setChanges] = useState<{ name?: string; about?: string }>({});
  const [isSaved, setSaved] = useState(false);
  const { isBusy, error, run } = useAction();
  const name = changes.name ?? me?.name ?? "";
  const about = changes.about ?? me?.about ?? "";
  const attempt = useAttempt();
  const save = async (): Promise<void> => {
    const body = { name: name.trim(), about: about.trim() };
    setMe(await client.http.call("change_me", { body }));
    getDirectory(client).set(client.user, { name: body.name || client.user });
  };
  const saveOnLeave = async (): Promise<void> => {
    if (await attempt(save)) showToast(text.common.saved);
  };
  useSaveOnLeave(Object.keys(changes).length > 0 ? () => void saveOnLeave() : null);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const isDone = await run(save);
    setSaved(isDone);
    if (isDone) setChanges({});
  };
  return (
    <form onSubmit={(event) => void submit(event)}>
      <TextField
        label={text.settings.displayName}
        value={name}
        maxLength={NAME_MAX}
        autoComplete="name"
        disabled={me === null}
        onChange={(event) => {
          setSaved(false);
          setChanges({ ...changes, name: event.target.value });
        }}
      />
      <TextArea
        label={text.settings.about}
        hint={text.settings.aboutHint}
        value={about}
        maxLength={ABOUT_MAX}
        disabled={me === null}
        onChange={(event) => {
          setSaved(false);
          setChanges({ ...changes, about: event.target.value });
        }}
      />
      <Button type="submit" variant="primary" isBusy={isBusy} disabled={me === null}>
        {text.common.save}
      </Button>
      <FormMessage error={error} success={isSaved ? text.common.saved : null} />
    </form>
  );
}

// Object URL of the selected picture. Other pages also show it, until it is replaced.
let pictureUrl: string | null = null;

function Picture() {
  const text = useText();
  const client = useClient();
  const { config } = useOpenSession();
  const input = useRef<HTMLInputElement>(null);
  const hasPicture = usePerson(client.user).picture !== null;
  const [problem, setProblem] = useState<string | null>(null);
  const { isBusy, error, run, clear } = useAction();
  const showPicture = (picture: string | null): void => {
    getDirectory(client).set(client.user, { picture });
    if (pictureUrl !== null) URL.revokeObjectURL(pictureUrl);
    pictureUrl = picture;
  };
  const choose = async ({ target }: ChangeEvent<HTMLInputElement>): Promise<void> => {
    const [file] = target.files ?? [];
    target.value = "";
    if (file === undefined) return;
    clear();
    setProblem(null);
    if (file.size > config.file_bytes_max) {
      setProblem(text.settings.pictureTooLarge(formatBytes(config.file_bytes_max)));
      return;
    }
    const isDone = await run(async () => {
      const { id } = await client.uploadPicture(file);
      await client.http.call("put_avatar", { body: { image: id } });
    });
    if (!isDone) return;
    showPicture(URL.createObjectURL(file));
  };
  const remove = async (): Promise<void> => {
    const isDone = await run(() => client.http.call("delete_avatar", {}));
    if (!isDone) return;
    showPicture(null);
  };
  return (
    <div className={styles["picture"]}>
      <PersonAvatar user={client.user} size="xl" />
      <div className={styles["actions"]}>
        <input
          ref={input}
          type="file"
          accept="image/jpeg,image/png,image/webp,image/gif"
          hidden
          aria-label={text.settings.changePicture}
          onChange={(event) => void choose(event)}
        />
        <Button isBusy={isBusy} onClick={() => input.current?.click()}>
          {text.settings.changePicture}
        </Button>
        {hasPicture && (
          <Button variant="quiet" disabled={isBusy} onClick={() => void remove()}>
            {text.settings.removePicture}
          </Button>
        )}
        <FormMessage error={problem ?? (error === null ? null : text.settings.pictureFailed)} />
      </div>
    </div>
  );
}
