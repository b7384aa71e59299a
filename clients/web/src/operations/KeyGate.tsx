// Asks for an API key before it shows tools that need one.

import { KeyRound, LogOut } from "lucide-react";
import { type FormEvent, type ReactNode, useState } from "react";
import { ChatError, HttpClient } from "tierchat";
import { useAction } from "../data/use_action";
import { Button, TextField } from "../design";
import { useText } from "../i18n";
import { TextWithCode } from "../i18n/TextWithCode";
import { ActionError } from "../page/Loadable";
import { Section } from "../page/Page";
import { setApiKey, useKeyedHttp } from "./api_key";
import styles from "./KeyGate.module.css";

interface KeyGateProps {
  /** Scopes that the tools need. */
  scopes: readonly string[];
  children: (http: HttpClient) => ReactNode;
}

/** Shows the tools if an API key is set. */
export function KeyGate({ scopes, children }: KeyGateProps) {
  const text = useText().operations;
  const http = useKeyedHttp();
  if (http === null) return <KeyForm scopes={scopes} />;
  return (
    <>
      {children(http)}
      <p className={styles["foot"]}>
        <KeyRound size={16} aria-hidden />
        {text.keyInUse}
        <Button variant="quiet" icon={LogOut} onClick={() => setApiKey(null)}>
          {text.keyForget}
        </Button>
      </p>
    </>
  );
}

function KeyForm({ scopes }: { scopes: readonly string[] }) {
  const text = useText().operations;
  const [typed, setTyped] = useState("");
  const { isBusy, error, run } = useAction();
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    const key = typed.trim();
    if (key === "") return;
    await run(async () => {
      await checkKey(key);
      setApiKey(key);
    });
  };
  return (
    <Section title={text.keyTitle} about={<TextWithCode>{text.keyHint}</TextWithCode>}>
      <form className="stack" onSubmit={(event) => void submit(event)}>
        <TextField
          label={text.key}
          type="password"
          autoComplete="off"
          hint={text.keyScopes(scopes.join(", "))}
          value={typed}
          onChange={(event) => setTyped(event.target.value)}
        />
        <ActionError error={error} />
        <Button type="submit" variant="primary" icon={KeyRound} isBusy={isBusy}>
          {text.keyUse}
        </Button>
      </form>
    </Section>
  );
}

/** Check that a key is valid. A missing scope is not an error here. */
async function checkKey(key: string): Promise<void> {
  const http = new HttpClient({ apiUrl: location.origin, getToken: () => key });
  try {
    await http.call("list_holds", { limit: 1 });
  } catch (error) {
    if (!(error instanceof ChatError) || error.code !== "forbidden") throw error;
  }
}
