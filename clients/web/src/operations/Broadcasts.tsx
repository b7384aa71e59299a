// Broadcasts: one message of the system to many users.

import { Send } from "lucide-react";
import { type FormEvent, useEffect, useState } from "react";
import { type Http, type HttpClient, newRef } from "tierchat";
import { useAction } from "../data/use_action";
import { Button, TextArea } from "../design";
import { parseUsers } from "../directory/contacts";
import { useText } from "../i18n";
import { ActionError } from "../page/Loadable";
import { Section } from "../page/Page";
import styles from "./Broadcasts.module.css";

const USERS_MAX = 1_000;
const TEXT_MAX = 4_000;
const POLL_MS = 1_000;

/** The tab "Broadcasts". */
export function Broadcasts({ http }: { http: HttpClient }) {
  const text = useText();
  const [typed, setTyped] = useState("");
  const [body, setBody] = useState("");
  const [problem, setProblem] = useState<string>();
  const [sent, setSent] = useState<Http.Broadcast | null>(null);
  const { isBusy, error, run } = useAction();
  const users = parseUsers(typed);
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    if (users === null) return setProblem(text.people.invalidUser);
    if (users.length === 0) return setProblem(text.group.addNone);
    if (users.length > USERS_MAX) return setProblem(text.operations.usersMax(USERS_MAX));
    await run(async () => {
      const key = newRef();
      setSent(await http.call("start_broadcast", { body: { users, body: body.trim() } }, key));
      setBody("");
    });
  };
  return (
    <>
      <Section title={text.operations.broadcast} about={text.operations.broadcastHint}>
        <form className="stack" onSubmit={(event) => void submit(event)}>
          <TextArea
            label={text.operations.recipients}
            hint={text.operations.recipientsHint(users?.length ?? 0, USERS_MAX)}
            error={problem}
            spellCheck={false}
            required
            value={typed}
            onChange={(event) => {
              setTyped(event.target.value);
              setProblem(undefined);
            }}
          />
          <TextArea
            label={text.operations.broadcastText}
            rows={4}
            maxLength={TEXT_MAX}
            required
            dir="auto"
            value={body}
            onChange={(event) => setBody(event.target.value)}
          />
          <ActionError error={error} />
          <Button type="submit" variant="primary" icon={Send} isBusy={isBusy}>
            {text.operations.send}
          </Button>
        </form>
      </Section>
      {sent !== null && <Progress key={sent.broadcast} initial={sent} http={http} />}
    </>
  );
}

function Progress({ initial, http }: { initial: Http.Broadcast; http: HttpClient }) {
  const text = useText().operations;
  const [broadcast, setBroadcast] = useState(initial);
  const isDone = broadcast.state === "done";
  useEffect(() => {
    if (isDone) return;
    const timer = setInterval(() => {
      const call = http.call("get_broadcast", { broadcast: initial.broadcast });
      void call.then(setBroadcast, () => {});
    }, POLL_MS);
    return () => clearInterval(timer);
  }, [isDone, initial.broadcast, http]);
  return (
    <Section title={text.progress}>
      <progress
        className={styles["progress"]}
        max={broadcast.total}
        value={broadcast.done}
        aria-label={text.progress}
      />
      <p role="status">{text.progressText(broadcast.done, broadcast.total, broadcast.failed)}</p>
    </Section>
  );
}
