// Settings of a group, its banned users and reports; for owners and admins.

import { type FormEvent, useState } from "react";
import type { GroupSettings, Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAction } from "../data/use_action";
import { useAttempt } from "../data/use_attempt";
import { usePages } from "../data/use_pages";
import { useSaveOnLeave } from "../data/use_save_on_leave";
import { Button, Select, showToast, TextArea, TextField } from "../design";
import { PersonAvatar, PersonName } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { formatDateTime, formatLongDuration } from "../i18n/format";
import { GroupReports } from "../moderation/GroupReports";
import { ActionError, PagesView } from "../page/Loadable";
import { Row, Rows } from "../page/Row";
import styles from "./ChatDetails.module.css";
import { InviteLink } from "./InviteLink";
import { addCurrent, RETENTION_CHOICES_S, SLOW_CHOICES_S } from "./setting_choices";

const NAME_CHARS_MAX = 80;
const TOPIC_CHARS_MAX = 250;

/** The tab "Manage". */
export function ManageTab({ info }: { info: Http.ChatInfo }) {
  const text = useText().group;
  return (
    <div className={styles["manage"]}>
      <NameForm info={info} />
      <Choices info={info} />
      <section aria-label={text.reports}>
        <h3>{text.reports}</h3>
        <GroupReports chat={info.chat} />
      </section>
      <section aria-label={text.bans}>
        <h3>{text.bans}</h3>
        <Bans chat={info.chat} />
      </section>
    </div>
  );
}

function NameForm({ info }: { info: Http.ChatInfo }) {
  const text = useText();
  const client = useClient();
  const attempt = useAttempt();
  const [edited, setEdited] = useState<{ name?: string; topic?: string }>({});
  const { isBusy, error, run } = useAction();
  const { name = info.name ?? "", topic = info.topic ?? "" } = edited;
  const isNameChanged = name.trim() !== "" && name.trim() !== info.name;
  const isTopicChanged = topic.trim() !== (info.topic ?? "");
  const save = async (): Promise<void> => {
    await client.chat(info.chat).update({
      ...(isNameChanged ? { name: name.trim() } : {}),
      ...(isTopicChanged ? { topic: topic.trim() } : {}),
    });
    showToast(text.group.saved);
  };
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (await run(save)) setEdited({});
  };
  useSaveOnLeave(isNameChanged || isTopicChanged ? () => void attempt(save) : null);
  return (
    <form className={styles["form"]} onSubmit={(event) => void submit(event)}>
      <TextField
        label={text.group.name}
        maxLength={NAME_CHARS_MAX}
        value={name}
        onChange={(event) => setEdited({ ...edited, name: event.target.value })}
      />
      <TextArea
        label={text.group.topic}
        rows={2}
        maxLength={TOPIC_CHARS_MAX}
        placeholder={text.group.topicHint}
        value={topic}
        onChange={(event) => setEdited({ ...edited, topic: event.target.value })}
      />
      <ActionError error={error} />
      {(isNameChanged || isTopicChanged) && (
        <Button type="submit" variant="primary" isBusy={isBusy}>
          {text.common.save}
        </Button>
      )}
    </form>
  );
}

/** Settings that are saved when they change. */
function Choices({ info }: { info: Http.ChatInfo }) {
  const text = useText().group;
  const client = useClient();
  const chat = client.chat(info.chat);
  const attempt = useAttempt();
  const save = (settings: GroupSettings): Promise<boolean> =>
    attempt(async () => {
      await chat.update(settings);
      showToast(text.saved);
    });
  const slow = info.slow_s ?? 0;
  const retention = info.retention_s ?? 0;
  return (
    <>
      <Select
        label={text.joining}
        value={info.joining ?? "invited"}
        options={[
          { value: "invited", label: text.joiningInvited },
          { value: "open", label: text.joiningOpen },
        ]}
        onChange={(joining) => void save({ joining })}
      />
      {info.joining === "open" && <InviteLink chat={info.chat} />}
      <Select
        label={text.history}
        value={info.history ?? "joined"}
        options={[
          { value: "joined", label: text.historyJoined },
          { value: "all", label: text.historyAll },
        ]}
        onChange={(history) => void save({ history })}
      />
      <Select
        label={text.slow}
        hint={text.slowHint}
        value={String(slow)}
        options={addCurrent(SLOW_CHOICES_S, slow).map((seconds) => ({
          value: String(seconds),
          label: seconds === 0 ? text.off : text.every(formatLongDuration(text, seconds)),
        }))}
        onChange={(seconds) => void save({ slowS: Number(seconds) })}
      />
      <Select
        label={text.retention}
        hint={text.retentionHint}
        value={String(retention)}
        options={addCurrent(RETENTION_CHOICES_S, retention).map((seconds) => ({
          value: String(seconds),
          label: seconds === 0 ? text.off : text.after(formatLongDuration(text, seconds)),
        }))}
        onChange={(seconds) => void save({ retentionS: Number(seconds) })}
      />
    </>
  );
}

function Bans({ chat }: { chat: string }) {
  const text = useText().group;
  const client = useClient();
  const attempt = useAttempt();
  const pages = usePages(`bans ${chat}`, (cursor) =>
    client.http.call("list_bans", { chat, limit: 100, ...(cursor ? { cursor } : {}) }),
  );
  const unban = (user: string): void =>
    void attempt(async () => {
      await client.chat(chat).unban(user);
      pages.update((items) => items.filter((banned) => banned.user !== user));
      showToast(text.unbanned(user));
    });
  return (
    <PagesView pages={pages} empty={<p className={styles["hint"]}>{text.noBans}</p>}>
      {(items) => (
        <Rows label={text.bans}>
          {items.map(({ user, by, since }) => (
            <Row
              key={user}
              picture={<PersonAvatar user={user} size="s" />}
              title={<PersonName user={user} />}
              text={text.bannedSince(by, formatDateTime(since))}
              actions={
                <Button aria-label={text.unbanUser(user)} onClick={() => unban(user)}>
                  {text.unban}
                </Button>
              }
            />
          ))}
        </Rows>
      )}
    </PagesView>
  );
}
