// The keyboard shortcuts.

import { useText } from "../i18n";
import { SettingPage, SettingSection } from "./SettingPage";
import { ShortcutList } from "./Shortcuts";

/** The page "shortcuts". */
export default function ShortcutsPage() {
  const text = useText().settings;
  return (
    <SettingPage title={text.shortcuts}>
      <SettingSection>
        <ShortcutList />
      </SettingSection>
    </SettingPage>
  );
}
