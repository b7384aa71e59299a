// Password change.

import { type FormEvent, useState } from "react";
import { useClient } from "tierchat/react";
import { Button, TextField } from "../design";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { FormMessage, SettingPage, SettingSection } from "./SettingPage";

const PASSWORD_MAX = 512;

/** The page "password". */
export default function PasswordPage() {
  const text = useText();
  const client = useClient();
  const [current, setCurrent] = useState("");
  const [password, setPassword] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [message, setMessage] = useState<{ error?: string; success?: string }>({});
  const submit = async (event: FormEvent): Promise<void> => {
    event.preventDefault();
    setBusy(true);
    try {
      await client.http.call("change_password", { body: { current, password } });
      setCurrent("");
      setPassword("");
      setMessage({ success: text.settings.passwordChanged });
    } catch (error) {
      const texts = { "current: wrong password": text.settings.currentWrong };
      setMessage({ error: getErrorText(error, texts) });
    } finally {
      setBusy(false);
    }
  };
  return (
    <SettingPage title={text.settings.password}>
      <SettingSection title={text.settings.changePassword}>
        <form onSubmit={(event) => void submit(event)}>
          <TextField
            label={text.settings.currentPassword}
            type="password"
            autoComplete="current-password"
            required
            maxLength={PASSWORD_MAX}
            value={current}
            onChange={(event) => setCurrent(event.target.value)}
          />
          <TextField
            label={text.settings.newPassword}
            hint={text.session.passwordHint}
            type="password"
            autoComplete="new-password"
            required
            maxLength={PASSWORD_MAX}
            value={password}
            onChange={(event) => setPassword(event.target.value)}
          />
          <Button type="submit" variant="primary" isBusy={isBusy}>
            {text.settings.changePassword}
          </Button>
          <FormMessage {...message} />
        </form>
      </SettingSection>
    </SettingPage>
  );
}
