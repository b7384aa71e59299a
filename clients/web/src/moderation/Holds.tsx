// Legal holds, and the copies of messages that they save.

import { Archive, Plus } from "lucide-react";
import { type FormEvent, useState } from "react";
import type { HttpClient } from "tierchat";
import { formatMessageLine } from "../content/message_summary";
import { useAction } from "../data/use_action";
import { useAttempt } from "../data/use_attempt";
import { useLoad } from "../data/use_load";
import { usePages } from "../data/use_pages";
import {
  Button,
  ConfirmDialog,
  Dialog,
  EmptyState,
  Label,
  showToast,
  TextArea,
  TextField,
} from "../design";
import { PersonAvatar } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { formatDateTime } from "../i18n/format";
import { ActionError, LoadedView, PagesView } from "../page/Loadable";
import { Section } from "../page/Page";
import { Row, Rows } from "../page/Row";
import { Time } from "../page/Time";
import styles from "./Holds.module.css";

/** The tab "Legal holds". */
export function Holds({ http }: { http: HttpClient }) {
  const text = useText().moderation;
  const [isOpen, setOpen] = useState(false);
  const pages = usePages("holds", (cursor) =>
    http.call("list_holds", { limit: 50, ...(cursor ? { cursor } : {}) }),
  );
  const empty = (
    <EmptyState icon={Archive} title={text.noHolds}>
      {text.noHoldsHint}
    </EmptyState>
  );
  return (
    <>
      <div className={styles["bar"]}>
        <Button icon={Plus} onClick={() => setOpen(true)}>
          {text.placeHold}
        </Button>
      </div>
      <PagesView pages={pages} empty={empty}>
        {(items) =>
          items.map(({ chat }) => (
            <Hold key={chat} chat={chat} http={http} onReleased={pages.reload} />
          ))
        }
      </PagesView>
      {isOpen && <HoldDialog http={http} onPlaced={pages.reload} onClose={() => setOpen(false)} />}
    </>
  );
}

interface HoldProps {
  chat: string;
  http: HttpClient;
  onReleased: () => void;
}

function Hold({ chat, http, onReleased }: HoldProps) {
  const text = useText().moderation;
  const attempt = useAttempt();
  const hold = useLoad(`hold ${chat}`, () => http.call("get_hold", { chat }));
  const [open, setOpen] = useState<"release" | "copies" | null>(null);
  const release = (): Promise<boolean> =>
    attempt(async () => {
      await http.call("release_hold", { chat });
      showToast(text.released);
      onReleased();
    });
  return (
    <Section
      title={chat}
      action={
        hold.data !== null && <Label>{text.holdState[hold.data.state] ?? hold.data.state}</Label>
      }
    >
      <LoadedView loaded={hold} skeleton={null}>
        {({ reason, by, since }) => (
          <>
            <p dir="auto">{reason}</p>
            <p className={styles["hint"]}>{text.holdBy(by, formatDateTime(since))}</p>
          </>
        )}
      </LoadedView>
      <div className={styles["bar"]}>
        <Button variant="quiet" onClick={() => setOpen("copies")}>
          {text.showCopies}
        </Button>
        <Button aria-label={text.releaseHold(chat)} onClick={() => setOpen("release")}>
          {text.release}
        </Button>
      </div>
      {open === "release" && (
        <ConfirmDialog
          title={text.releaseTitle}
          message={text.releaseText}
          action={text.release}
          isDangerous
          onConfirm={release}
          onClose={() => setOpen(null)}
        />
      )}
      {open === "copies" && <Copies chat={chat} http={http} onClose={() => setOpen(null)} />}
    </Section>
  );
}

function Copies({ chat, http, onClose }: { chat: string; http: HttpClient; onClose: () => void }) {
  const text = useText().moderation;
  const pages = usePages(`copies ${chat}`, (cursor) =>
    http.call("list_held", { chat, limit: 100, ...(cursor ? { cursor } : {}) }),
  );
  return (
    <Dialog title={text.copies} size="m" onClose={onClose}>
      <PagesView pages={pages} empty={<p>{text.noCopies}</p>}>
        {(items) => (
          <Rows label={text.copies}>
            {items.map((message, index) => (
              <Row
                key={`${message.seq} ${index}`}
                picture={<PersonAvatar user={message.sender} size="s" />}
                title={<bdi>{message.sender}</bdi>}
                note={<Time ms={message.ts / 1000} />}
                text={formatMessageLine(message)}
                isLines
              />
            ))}
          </Rows>
        )}
      </PagesView>
    </Dialog>
  );
}

interface HoldDialogProps {
  http: HttpClient;
  onPlaced: () => void;
  onClose: () => void;
}

function HoldDialog({ http, onPlaced, onClose }: HoldDialogProps) {
  const text = useText().moderation;
  const [chat, setChat] = useState("");
  const [reason, setReason] = useState("");
  const { isBusy, error, run } = useAction();
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const isDone = await run(() =>
      http.call("put_hold", { chat: chat.trim(), body: { reason: reason.trim() } }),
    );
    if (!isDone) return;
    showToast(text.holdPlaced);
    onPlaced();
    onClose();
  };
  return (
    <Dialog title={text.placeHold} onClose={onClose}>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <TextField
          label={text.chatId}
          required
          autoFocus
          spellCheck={false}
          value={chat}
          onChange={(event) => setChat(event.target.value)}
        />
        <TextArea
          label={text.reason}
          required
          value={reason}
          onChange={(event) => setReason(event.target.value)}
        />
        <ActionError error={error} />
        <Button type="submit" variant="primary" isBusy={isBusy}>
          {text.placeHold}
        </Button>
      </form>
    </Dialog>
  );
}
