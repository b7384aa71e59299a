// Theme and language.

import { useState } from "react";
import { Select } from "../design";
import { LANGUAGES, type Language, useText } from "../i18n";
import { chooseLanguage, readAppearance, saveAppearance, type Theme } from "./appearance";
import { SettingPage, SettingSection } from "./SettingPage";

/** The page "appearance". */
export default function AppearancePage() {
  const text = useText();
  const [appearance, setAppearance] = useState(readAppearance);
  const selectTheme = (value: string): void => {
    const theme = value === "system" ? null : (value as Exclude<Theme, null>);
    saveAppearance({ theme });
    setAppearance(readAppearance());
  };
  const selectLanguage = async (value: string): Promise<void> => {
    await chooseLanguage(value === "system" ? null : (value as Language));
    setAppearance(readAppearance());
  };
  const languages = Object.entries(LANGUAGES).map(([value, label]) => ({ value, label }));
  return (
    <SettingPage title={text.settings.appearance}>
      <SettingSection>
        <Select
          label={text.settings.theme}
          value={appearance.theme ?? "system"}
          options={[
            { value: "system", label: text.settings.themeSystem },
            { value: "light", label: text.settings.themeLight },
            { value: "dark", label: text.settings.themeDark },
          ]}
          onChange={selectTheme}
        />
        <Select
          label={text.settings.language}
          value={appearance.language ?? "system"}
          options={[{ value: "system", label: text.settings.languageSystem }, ...languages]}
          onChange={(value) => void selectLanguage(value)}
        />
      </SettingSection>
    </SettingPage>
  );
}
