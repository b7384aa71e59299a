// Push notifications of this browser.

import { Switch } from "../design";
import { useText } from "../i18n";
import { usePush } from "./push_subscription";
import { FormMessage, SettingPage, SettingSection } from "./SettingPage";

/** The page "notifications". */
export default function NotificationsPage() {
  const text = useText();
  const { state, setEnabled } = usePush();
  const problems = { missing: text.settings.pushMissing, blocked: text.settings.pushBlocked };
  const hint =
    state === "missing" || state === "blocked" ? problems[state] : text.settings.pushHint;
  return (
    <SettingPage title={text.settings.notifications}>
      <SettingSection>
        <Switch
          label={text.settings.push}
          hint={hint}
          isOn={state === "on"}
          isDisabled={["missing", "blocked", "busy"].includes(state)}
          onChange={(isOn) => void setEnabled(isOn)}
        />
        <FormMessage error={state === "failed" ? text.settings.pushFailed : null} />
      </SettingSection>
    </SettingPage>
  );
}
