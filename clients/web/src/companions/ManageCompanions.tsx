// Creation, editing and deletion of companions; for operators with an API key.

import { Ellipsis, Pencil, Plus, Trash2 } from "lucide-react";
import { useState } from "react";
import type { Http, HttpClient } from "tierchat";
import { useAttempt } from "../data/use_attempt";
import type { Pages } from "../data/use_pages";
import { Avatar, Button, ConfirmDialog, MenuButton, showToast } from "../design";
import { useText } from "../i18n";
import { KeyGate } from "../operations/KeyGate";
import { Section } from "../page/Page";
import { Row, Rows } from "../page/Row";
import { CompanionForm } from "./CompanionForm";

/** The section "Manage companions". */
export function ManageCompanions({ companions }: { companions: Pages<Http.CompanionInfo> }) {
  const text = useText().companions;
  const [isCreating, setCreating] = useState(false);
  return (
    <KeyGate scopes={["companions:read", "companions:write"]}>
      {(http) => (
        <Section
          title={text.manage}
          action={
            <Button icon={Plus} onClick={() => setCreating(true)}>
              {text.create}
            </Button>
          }
        >
          <Rows label={text.manage}>
            {companions.items.map((companion) => (
              <ManagedRow
                key={companion.id}
                companion={companion}
                http={http}
                onChange={companions.reload}
              />
            ))}
          </Rows>
          {isCreating && (
            <CompanionForm
              http={http}
              companion={null}
              onSaved={companions.reload}
              onClose={() => setCreating(false)}
            />
          )}
        </Section>
      )}
    </KeyGate>
  );
}

interface ManagedRowProps {
  companion: Http.CompanionInfo;
  http: HttpClient;
  onChange: () => void;
}

function ManagedRow({ companion, http, onChange }: ManagedRowProps) {
  const text = useText().companions;
  const attempt = useAttempt();
  const [open, setOpen] = useState<"edit" | "delete" | null>(null);
  const { id, name, version } = companion;
  const remove = (): Promise<boolean> =>
    attempt(async () => {
      await http.call("delete_companion", { companion: id });
      showToast(text.deleted(name));
      onChange();
    });
  return (
    <Row
      picture={<Avatar id={id} name={name} size="s" />}
      title={<bdi>{name}</bdi>}
      text={`${id} · ${text.versionShown(version)}`}
      actions={
        <>
          <MenuButton
            icon={Ellipsis}
            label={text.actions(name)}
            size="s"
            items={[
              { label: text.edit, icon: Pencil, onSelect: () => setOpen("edit") },
              {
                label: text.delete,
                icon: Trash2,
                isDangerous: true,
                onSelect: () => setOpen("delete"),
              },
            ]}
          />
          {open === "edit" && (
            <CompanionForm
              http={http}
              companion={companion}
              onSaved={onChange}
              onClose={() => setOpen(null)}
            />
          )}
          {open === "delete" && (
            <ConfirmDialog
              title={text.deleteTitle(name)}
              message={text.deleteText}
              action={text.delete}
              isDangerous
              onConfirm={remove}
              onClose={() => setOpen(null)}
            />
          )}
        </>
      }
    />
  );
}
