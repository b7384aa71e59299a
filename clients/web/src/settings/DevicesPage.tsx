// The devices on which the user is logged in.

import { MonitorSmartphone } from "lucide-react";
import { useState } from "react";
import type { Http } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { useApi } from "../data/use_load";
import { Button, ConfirmDialog, ErrorState, Label, SkeletonRows } from "../design";
import { useText } from "../i18n";
import { getErrorText } from "../i18n/errors";
import { formatRelative } from "../i18n/format";
import { useSession } from "../session/session_context";
import styles from "./DevicesPage.module.css";
import { SettingPage, SettingSection } from "./SettingPage";

const SHOWN_MAX = 200;

/** The page "devices". */
export default function DevicesPage() {
  const text = useText();
  const client = useClient();
  const session = useSession();
  const attempt = useAttempt();
  const devices = useApi("list_devices", { limit: SHOWN_MAX });
  const [isConfirming, setConfirming] = useState(false);
  const end = async (device: string): Promise<void> => {
    await attempt(() => client.http.call("end_device", { device }));
    devices.reload();
  };
  const logOutEverywhere = (): Promise<boolean> =>
    attempt(() => session.logOut(() => client.http.call("log_out_everywhere", {})));
  return (
    <SettingPage title={text.settings.devices}>
      <SettingSection hint={text.settings.devicesHint}>
        {devices.error !== null && (
          <ErrorState message={getErrorText(devices.error)} onRetry={devices.reload} />
        )}
        {devices.data === null && devices.error === null && <SkeletonRows count={3} />}
        <ul className={styles["list"]}>
          {devices.data?.items.map((device) => (
            <DeviceRow key={device.device} device={device} onEnd={() => end(device.device)} />
          ))}
        </ul>
        <Button onClick={() => setConfirming(true)}>{text.settings.logOutEverywhere}</Button>
      </SettingSection>
      {isConfirming && (
        <ConfirmDialog
          title={text.settings.logOutEverywhere}
          message={text.settings.logOutEverywhereMessage}
          action={text.settings.logOutEverywhere}
          isDangerous
          onConfirm={logOutEverywhere}
          onClose={() => setConfirming(false)}
        />
      )}
    </SettingPage>
  );
}

function DeviceRow({ device, onEnd }: { device: Http.Device; onEnd: () => Promise<void> }) {
  const text = useText();
  const [isBusy, setBusy] = useState(false);
  const name = device.name ?? text.settings.unnamedDevice;
  const end = (): void => {
    setBusy(true);
    void onEnd().finally(() => setBusy(false));
  };
  return (
    <li className={styles["device"]}>
      <MonitorSmartphone size={24} aria-hidden />
      <span>
        <bdi>{name}</bdi>
        <span className={styles["seen"]}>
          {text.settings.lastSeen(formatRelative(device.seen))}
        </span>
      </span>
      {device.is_current ? (
        <Label kind="accent">{text.settings.thisDevice}</Label>
      ) : (
        <Button isBusy={isBusy} aria-label={text.settings.endDeviceNamed(name)} onClick={end}>
          {text.settings.endDevice}
        </Button>
      )}
    </li>
  );
}
