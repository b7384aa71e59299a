// The list of settings pages, and logout.

import {
  Activity,
  Bell,
  Keyboard,
  KeyRound,
  LogOut,
  type LucideIcon,
  MonitorSmartphone,
  Palette,
  ShieldAlert,
  ShieldCheck,
  UserRound,
} from "lucide-react";
import { useState } from "react";
import { useChats, useClient } from "tierchat/react";
import { useMediaQuery } from "../data/use_media_query";
import { ConfirmDialog } from "../design";
import { usePerson } from "../directory/directory";
import { PersonAvatar } from "../directory/PersonAvatar";
import { useText } from "../i18n";
import { Link, useLocation } from "../page/router";
import { useMe } from "../session/me";
import { useOpenSession, useSession } from "../session/session_context";
import styles from "./SettingsPage.module.css";

/** The page in the list pane of the section "settings". */
export default function SettingsPage() {
  const text = useText();
  const client = useClient();
  const session = useSession();
  const { isAccount } = useOpenSession();
  const me = useMe();
  const person = usePerson(client.user);
  const [isLoggingOut, setLoggingOut] = useState(false);
  const hasKeyboard = useMediaQuery("(any-pointer: fine)");
  const unsent = useChats().reduce((sum, { pending }) => sum + pending.length, 0);
  return (
    <>
      <header className={styles["header"]}>
        <h1>{text.settings.title}</h1>
      </header>
      <div className={styles["list"]}>
        <div className={styles["who"]}>
          <PersonAvatar user={client.user} size="l" />
          <span>
            <bdi className={styles["name"]}>{me?.name ?? person.name}</bdi>
            <bdi className={styles["id"]}>@{client.user}</bdi>
          </span>
        </div>
        <ul>
          <Item path="profile" icon={UserRound} label={text.settings.profile} />
          <Item path="appearance" icon={Palette} label={text.settings.appearance} />
          <Item path="notifications" icon={Bell} label={text.settings.notifications} />
          {isAccount && <Item path="password" icon={KeyRound} label={text.settings.password} />}
          {isAccount && (
            <Item path="devices" icon={MonitorSmartphone} label={text.settings.devices} />
          )}
          <Item path="privacy" icon={ShieldCheck} label={text.settings.privacy} />
          {hasKeyboard && <Item path="shortcuts" icon={Keyboard} label={text.settings.shortcuts} />}
        </ul>
        {me?.is_admin === true && (
          <ul className={styles["admin"]}>
            <Item to="/moderation" icon={ShieldAlert} label={text.common.sections.moderation} />
            <Item to="/operations" icon={Activity} label={text.common.sections.operations} />
          </ul>
        )}
        <button type="button" className={styles["item"]} onClick={() => setLoggingOut(true)}>
          <LogOut size={20} aria-hidden />
          {text.session.logOut}
        </button>
      </div>
      {isLoggingOut && (
        <ConfirmDialog
          title={text.session.logOutTitle}
          message={unsent > 0 ? text.session.logOutPending(unsent) : text.session.logOutMessage}
          action={text.session.logOut}
          isDangerous={unsent > 0}
          onConfirm={() => session.logOut()}
          onClose={() => setLoggingOut(false)}
        />
      )}
    </>
  );
}

interface ItemProps {
  /** The path of a settings page. */
  path?: string;
  to?: string;
  icon: LucideIcon;
  label: string;
}

function Item({ path = "", to = `/settings/${path}`, icon: Icon, label }: ItemProps) {
  const { path: current } = useLocation();
  return (
    <li>
      <Link to={to} className={styles["item"]} aria-current={current === to ? "page" : undefined}>
        <Icon size={20} aria-hidden />
        {label}
      </Link>
    </li>
  );
}
