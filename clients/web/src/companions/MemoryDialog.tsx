// The memory of a companion about the user: view it, delete it, or turn it off.

import { Trash2 } from "lucide-react";
import { useState } from "react";
import { ChatError } from "tierchat";
import { useClient } from "tierchat/react";
import { useAttempt } from "../data/use_attempt";
import { useApi } from "../data/use_load";
import { Button, ConfirmDialog, Dialog, IconButton, Switch, showToast } from "../design";
import { useText } from "../i18n";
import { formatDateTime } from "../i18n/format";
import { LoadedView } from "../page/Loadable";
import { Row, Rows } from "../page/Row";

interface MemoryDialogProps {
  companion: string;
  name: string;
  onClose: () => void;
}

/** The memory of a companion. */
export function MemoryDialog({ companion, name, onClose }: MemoryDialogProps) {
  const text = useText().companions;
  const client = useClient();
  const attempt = useAttempt();
  const memory = useApi("get_companion_memory", { companion });
  const [isConfirming, setConfirming] = useState(false);

  const setEnabled = async (enabled: boolean): Promise<void> => {
    const before = memory.data;
    if (before === null) return;
    const body = { enabled };
    memory.set({ ...before, enabled });
    const isDone = await attempt(async () => {
      memory.set(await client.http.call("switch_companion_memory", { companion, body }));
    });
    if (!isDone) memory.set(before);
  };
  const deleteEntry = (entry: string): void =>
    void attempt(async () => {
      await client.http
        .call("delete_companion_memory_entry", { companion, entry })
        .catch((error: unknown) => {
          if (!(error instanceof ChatError) || error.code !== "not_found") throw error;
        });
      memory.reload();
    });
  const deleteAll = (): Promise<boolean> =>
    attempt(async () => {
      await client.http.call("delete_companion_memory", { companion });
      memory.reload();
      showToast(text.forgotten);
    });
  return (
    <Dialog title={text.memoryOf(name)} size="m" onClose={onClose}>
      <LoadedView loaded={memory}>
        {({ enabled, entries }) => (
          <div className="stack">
            <Switch
              label={text.remember}
              hint={enabled ? text.rememberOn : text.rememberOff}
              isOn={enabled}
              onChange={(enabled) => void setEnabled(enabled)}
            />
            {entries.length === 0 ? (
              <p>{text.nothing}</p>
            ) : (
              <>
                <Rows label={text.memories}>
                  {entries.map((entry) => (
                    <Row
                      key={entry.id}
                      title={
                        entry.kind === "summary"
                          ? text.earlierSession
                          : formatDateTime(entry.updated)
                      }
                      note={entry.kind === "summary" ? formatDateTime(entry.updated) : undefined}
                      text={entry.text}
                      isLines
                      actions={
                        <IconButton
                          icon={Trash2}
                          label={text.forget(entry.text)}
                          size="s"
                          onClick={() => deleteEntry(entry.id)}
                        />
                      }
                    />
                  ))}
                </Rows>
                <Button variant="danger" onClick={() => setConfirming(true)}>
                  {text.forgetAll}
                </Button>
              </>
            )}
          </div>
        )}
      </LoadedView>
      {isConfirming && (
        <ConfirmDialog
          title={text.forgetAllTitle}
          message={text.forgetAllText}
          action={text.forgetAll}
          isDangerous
          onConfirm={deleteAll}
          onClose={() => setConfirming(false)}
        />
      )}
    </Dialog>
  );
}
