// The keyboard shortcuts.

import { ShortcutList } from "./Shortcuts";
import { useText } from "../i18n";
import { SettingPage, SettingSection } from "./SettingPage";

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
